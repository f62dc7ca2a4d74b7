"""What does a text-pre-trained encoder know that units can use? Experiments on text models that
explain why DUAL works.

One mechanism serves all of them: symbols (artificial ids, letters of DNA, pixels, units of speech)
take the place of tokens of an encoder, as `textlm.symbol_encoder` has it for DUAL, the trainer is
`trainer.fit`, and every run leaves its answers, item by
item, in RESULTS/runs/TASK/ARM-SEED, from which gains over scratch and their intervals are computed.

    data        artificial data: streams of ids that have one property of language and no meaning    (arXiv 2109.03537);
                real text: documents, sentences, tokens, vocabularies
    objectives  what an encoder is pre-trained to do: masked tokens, words or spans, sentence order, replaced tokens, what follows
    pretrain    an encoder from scratch, or continued, on any of these
    tasks       sentence tasks made of real text, GLUE's; DNA, proteins, music as tasks               (arXiv 2103.07162)
    classify    fine-tuning on a task, from any start
    frozen      the frozen pre-trained transformer: bits, ListOps, images                             (arXiv 2103.05247)
    languages   how near words and their translations lie, by layer; shifts between languages; tokens
                turned into another language's by the mean difference of both                         (arXiv 2010.10041)
    unit_lm     GPT on units, from a language model of text or none; what it knows of words and
                non-words, and how it goes on                                                         (arXiv 2305.13009)
    surface     DUAL's plateau, and the loss around a trained reader, along lines and in planes       (arXiv 1908.05620, 1712.09913)
    runs        what a run leaves; scores and gains, drawn over seeds and items
    tables      gains over scratch, and all tables, beside what is published

Which weights are trained is a matter of `speechssl.finetuning`. Spoken and written question
answering are `speechssl train dual`, `train text-qa` and `evaluate qa`, which take every encoder
that is made here.
"""
