"""A parallel English-German corpus from a grammar of its own: a demonstration needs no other text.

    python -m keras_transformer.training.embedded_corpus DIRECTORY

Every function builds the two languages side by side. The German follows from the English alone
(the English past is a preterite, in questions a perfect; "you" is always formal). What makes
translation hard is there: verb-final clauses, separable verbs, case and gender, pronouns that agree
with a noun far away, numbers, dates and prices.

    determiners, nouns, adjectives, verbs ─► numbers, tenses ─► phrases ─► places, times ─► clauses
        ─► actions ─► sentences of six kinds ─► generator
"""

from .generator import generate, write

__all__ = ["generate", "write"]
