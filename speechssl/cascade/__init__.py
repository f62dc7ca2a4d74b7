"""Speech to timed words: the front half of the cascade that textless question answering is compared with.

`protocol.py` says what a recogniser is. Three kinds keep to it: `ctc.py`, a CTC head on frozen hidden states of a self-supervised
encoder, with its decoding and its forced alignment; `pocketsphinx.py`, a small engine that needs no download; `huggingface.py`,
any CTC or Whisper checkpoint. `pieces.py` cuts long recordings at pauses for the engines that cannot take them whole.
"""
