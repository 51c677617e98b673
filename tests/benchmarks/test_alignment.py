"""Tests of the benchmark of alignments: which links are sure, and the error rate of links."""

from benchmarks.alignment import error_rate, sure_links, word_links


def test_nouns_and_adjectives_that_come_once_are_linked():
    source = "The old woman gave the child a red apple, and the women slept."
    target = "Die alte Frau hat dem Kind einen roten Apfel gegeben, und die Frauen haben geschlafen."
    # Not the woman, who is there twice, nor verbs.
    assert sure_links(source, target) == {(1, 1), (5, 5), (7, 7), (8, 8)}


def test_words_are_linked_by_their_pieces():
    source, target = ["▁The", "▁do", "g", ".", "</s>"], ["▁Der", "▁", "Hun", "d", ".", "</s>"]
    links = [(0, 0), (1, 1), (1, 2), (2, 3), (2, 0), (3, 4)]
    assert word_links(source, target, links) == {(0, 0), (1, 1), (1, 0), (2, 2)}


def test_error_rate_is_that_of_links_from_or_to_sure_words():
    sure = [{(1, 1), (3, 2)}, {(0, 4)}]
    assert error_rate(sure, sure) == 0
    # (0, 0) links none of these words; (1, 5) and (2, 2) are wrong, (0, 4) is missing: 2 of 4 found, 2 of 3 sure.
    found = [{(0, 0), (1, 1), (1, 5), (2, 2), (3, 2)}, set()]
    assert error_rate(found, sure) == 1 - 2 * 2 / (4 + 3)
