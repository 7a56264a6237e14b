"""Between text and ids: tokenizer, chat template, incremental detokeniser, stop matcher. Values in, values out."""
