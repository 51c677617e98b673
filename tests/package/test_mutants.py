"""The table of faults in tests/mutants fits the code. `python -m tests.mutants.run` applies them."""

import pathlib
import re
from collections import Counter

from mutants.run import read_mutants

ROOT = pathlib.Path(__file__).parents[2]
MUTANTS = read_mutants()


def test_each_mutant_changes_one_place_and_names_tests_that_exist():
    for mutant in MUTANTS:
        code = (ROOT / mutant["file"]).read_text("utf-8")
        assert code.count(mutant["old"]) == 1, mutant["id"]
        assert mutant["old"] != mutant["new"] and mutant["tests"], mutant["id"]
        for test in mutant["tests"]:
            path, _, name = test.partition("::")
            content = (ROOT / path).read_text("utf-8")
            function = name.partition("[")[0].split("::")[-1]
            assert re.search(rf"\b(def|class) {function}\b", content), (mutant["id"], test)


def test_mutants_are_in_all_areas():
    numbers = Counter(mutant["area"] for mutant in MUTANTS)
    assert len(MUTANTS) >= 80 and min(numbers.values()) >= 5, numbers
