"""MiniSQA, a synthetic spoken question-answering corpus: small invented passages whose answers are known to the character."""
