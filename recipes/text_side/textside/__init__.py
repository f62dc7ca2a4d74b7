"""The programs of the text side share this code. They ask what a text-pre-trained encoder knows
that units can use.

One mechanism serves all of them: symbols (artificial ids, letters of DNA, pixels, units of speech)
take the place of tokens of an encoder, as `speechssl.textlm.symbols` has it for DUAL;
`speechssl.training.fit` trains;
and every run writes its answers, item by item, to RESULTS/runs/TASK/ARM-SEED, from which gains over
scratch and their intervals are computed.

    options     options that several programs have
    data        artificial data: streams of ids that have one property of language and no meaning
                (arXiv 2109.03537); real text: documents, sentences, tokens, vocabularies
    objectives  objectives of pre-training: masked tokens, words or spans, sentence order, replaced
                tokens, the next token
    tasks       sentence tasks, GLUE's; DNA, proteins, music as tasks (2103.07162)
    puzzles     tasks of the frozen transformer: bits, ListOps, images (2103.05247)
    languages   words of two languages, and the states of an encoder for them (2010.10041)
    lm          language models of units (2305.13009)
    runs        files of a run; scores and gains with intervals over seeds and items
    tables      gains over scratch, and all tables
    published   results of the papers and the lectures (published.yaml)
    claims      whether our results agree with them

`speechssl.finetuning` says which weights are trained. Spoken and written question
answering are `speechssl train dual`, `train text-qa` and `evaluate qa`, which take every encoder
that `pretrain.py` makes.
"""
