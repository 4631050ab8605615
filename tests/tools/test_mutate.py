# SPDX-License-Identifier: Apache-2.0
"""Goal: tools/mutate proposes the mistakes it promises, leaves alone what it should, and tells a
test that notices from one that does not.

Method: the tokeniser and each operator on a few lines of C, by comparing the mutated text; the file
of explained survivors and the counts by hand; then the whole tool on a small Meson project with one
good test, one that checks nothing, and a mutant that only TSan can kill or that hangs.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import textwrap
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from mutate_lib import allowed, build, process, record, schedule  # noqa: E402
from mutate_lib.operators import OPERATORS, mutants_of  # noqa: E402
from mutate_lib.report import Report, ratio  # noqa: E402
from mutate_lib.statements import Source  # noqa: E402
from mutate_lib.tokens import MutateError, tokenise  # noqa: E402
from mutate_lib.workshop import Outcome, own_tests  # noqa: E402


def texts(code):
    return [token.text for token in tokenise(code)]


def in_function(body, head="int f(void)"):
    return f"{head}\n{{\n{body}\n}}\n"


def changed(body, operator=None, head="int f(void)"):
    """The bodies that the mutants of one operator have, without blanks at the ends of lines."""
    code = in_function(body, head)
    found = []
    for mutant in mutants_of("src/m/f.c", code):
        if operator is None or mutant.operator == operator:
            result = mutant.apply(code)
            assert result.count("\n") == code.count("\n")  # Lines stay where they are.
            found.append(result[len(head) + 3:-3].strip())
    return found


# Tokens.

def test_comments_strings_and_directives_are_no_code():
    code = textwrap.dedent(r"""
        #define LESS(a, b) \
            ((a) < (b))
          # include <x.h> /* one
             comment */
        a /* < */ b // < \
            still < a comment
        "< \" <" '<' '\'' c
        """)
    assert texts(code) == ["a", "b", r'"< \" <"', "'<'", r"'\''", "c"]


def test_tokens_are_the_longest_possible():
    assert texts("a<<=b->c...x++ + 0x1fUL>=1.5e+3") == [
        "a", "<<=", "b", "->", "c", "...", "x", "++", "+", "0x1fUL", ">=", "1.5e+3"]


def test_what_is_not_c_is_an_error_with_its_line():
    with pytest.raises(MutateError, match="x.c:2: not C"):
        tokenise("a\n`", "x.c")


@pytest.mark.parametrize("code", ["f(", "f)", "f(]", "{"])
def test_brackets_that_do_not_match_are_an_error(code):
    with pytest.raises(MutateError, match="x.c"):
        Source("x.c", code)


# Functions and statements.

def test_functions_are_told_from_structs_and_tables():
    code = textwrap.dedent("""
        struct FW_CAPABILITY("mutex") fw_mutex { int x; };
        struct __attribute__((packed)) odd { int x; };
        enum { A = 1 };
        static const int table[] = {1, 2};
        static int (*const calls[])(int) = {f};
        int declared(int x);
        FW_TSA_TRUSTED void locked(struct x *x) FW_REQUIRES(x->lock) { g(); }
        static inline void *pointer(void) { return p; }
        """)
    found = [(f.name, f.returns_void) for f in Source("x.c", code).functions]
    assert found == [("locked", True), ("pointer", False)]


def test_statements_have_kinds_and_nest():
    code = in_function("""
        uint32_t a = 1; struct s *b; type_t *c = d; a = 2; *b = x; (void)g();
        if (a) { return 1; } else if (b) g(); else { }
        for (int i = 0; i < 3; i++) { continue; }
        do { a--; } while (a > 0);
        FW_LIST_FOR_EACH (&list, struct t, link, item) { break; }
        switch (a) { case 1: break; default: goto out; }
    out:
        return a ? 1 : 2;""")
    [function] = Source("x.c", code).functions
    assert [s.kind for s in function.body.children] == [
        "declaration", "declaration", "declaration", "expression", "expression", "expression",
        "if", "for", "do", "macro-loop", "switch", "label", "return"]
    kinds = [s.kind for s in function.body.walk()]
    assert kinds.count("break") == 2 and kinds.count("continue") == 1 and kinds.count("if") == 2


# Operators, each on what it changes and on what it must leave alone.

def test_drop():
    assert changed("x = 1; g(2,\n 3); int y = 4; return y;", "drop") == [
        "; g(2,\n 3); int y = 4; return y;", "x = 1; ;\n int y = 4; return y;"]


def test_drop_leaves_early_returns_only_where_the_function_still_returns():
    assert changed("if (x) { return a; } return b;", "drop") == ["if (x) { ; } return b;"]
    assert changed("if (x) { return a; } else { return b; }", "drop") == []
    assert changed("if (x) { return; } g();", "drop", "void f(void)") == [
        "if (x) { ; } g();", "if (x) { return; } ;"]
    assert changed("if (x) { goto out; }\nout: return b;", "drop") == [
        "if (x) { ; }\nout: return b;"]


def test_what_is_a_check_itself_is_left_alone():
    body = """(void)unused;
        FW_ASSERT(a < 1 && b); FW_CHECK(walk(2) == 3); FW_YIELD_POINT("f: x");
        static_assert(sizeof a == 8, "size");
        return a;"""
    assert changed(body) == []


def test_functions_that_only_assert_are_assertions():
    code = ("static void check(int a) { const int b = g(a); FW_ASSERT(b); }\n"
            "static void list_invariant(int a) { a++; FW_ASSERT(a); }\n"
            "static void act(int a) { g(a); FW_ASSERT(a); }\n"
            "void f(int a) { check(a); list_invariant(a); act(a); }\n")
    dropped = [m.before for m in mutants_of("src/m/f.c", code)
               if m.operator == "drop" and m.function == "f"]
    assert len(dropped) == 1
    [mutant] = [m for m in mutants_of("src/m/f.c", code) if m.function == "f"]
    assert "list_invariant(a); ;" in mutant.apply(code)


@pytest.mark.parametrize("old, new", [
    ("<", "<="), ("<=", "<"), (">", ">="), (">=", ">"), ("==", "!="), ("!=", "==")])
def test_compare(old, new):
    assert changed(f"return a {old} b;", "compare") == [f"return a {new} b;"]


def test_compare_knows_arrows_and_shifts():
    assert changed("return a->b << c->d >> 1;", "compare") == []


def test_logic():
    assert changed("return a && b || c;", "logic") == [
        "return a || b || c;", "return a && b && c;"]


def test_negate():
    assert changed("if (a < b) { g(); } return x;", "negate") == [
        "if (!(a < b)) { g(); } return x;"]
    assert changed("while (g()) { } do { } while (a && b); return x;", "negate") == [
        "while (!(g())) { } do { } while (a && b); return x;",
        "while (g()) { } do { } while (!(a && b)); return x;"]
    assert changed("for (i = 0; i < (n); i++) { } for (;;) { } return x;", "negate") == [
        "for (i = 0; !(i < (n)); i++) { } for (;;) { } return x;"]


def test_negate_does_not_repeat_what_compare_does():
    assert changed("if (a == b) { g(); } return a != b ? 1 : 2;", "negate") == []


@pytest.mark.parametrize("before, after", [
    ("return a ? b : c;", "return !(a) ? b : c;"),
    ("x = f(a) < b ? c : d;", "x = !(f(a) < b) ? c : d;"),
    ("g(1, a[i] && b ? c : d);", "g(1, !(a[i] && b) ? c : d);"),
    ("if (z == 1) { } a ? g() : h();", "if (z == 1) { } !(a) ? g() : h();")])
def test_negate_finds_where_the_condition_of_a_ternary_begins(before, after):
    assert changed(before, "negate") == [after]


def test_constant():
    assert changed("x = 0; return 7;", "constant") == [
        "x = 1; return 7;", "x = 0; return 6;", "x = 0; return 8;"]
    assert changed("x = 0x10UL;", "constant") == ["x = 0x11UL;", "x = 0xfUL;"]
    assert changed("x = 010;", "constant") == ["x = 011;", "x = 07;"]
    assert changed("x = 1.5; y = 'a'; z = \"1\";", "constant") == []


def test_constant_leaves_out_what_another_mutant_is_already():
    assert changed("return a < 3;", "constant") == ["return a < 2;"]  # <= 3 is compare's.
    assert changed("return a <= 3;", "constant") == ["return a <= 4;"]
    assert changed("return 0;", "constant") == []  # value's.


def test_constant_does_not_make_arrays_longer():
    assert changed("char a[8]; g(a[2]);", "constant") == [
        "char a[7]; g(a[2]);", "char a[8]; g(a[1]);", "char a[8]; g(a[3]);"]


@pytest.mark.parametrize("before, after", [
    ("a < n", "a < -1 + n"), ("a <= n", "a <= 1 + n"),
    ("a > n", "a > 1 + n"), ("a >= n", "a >= -1 + n")])
def test_bound_goes_the_way_that_compare_does_not(before, after):
    assert changed(f"return {before};", "bound") == [f"return {after};"]


def test_order():
    assert changed("return atomic_load_explicit(&a, memory_order_acquire);", "order") == [
        "return atomic_load_explicit(&a, memory_order_relaxed);"]
    assert changed("atomic_store(&a, g(1)); return b;", "order") == [
        "atomic_store_explicit(&a, g(1), memory_order_relaxed); return b;"]
    assert changed("return atomic_compare_exchange_weak(&a, &b, c);", "order") == [
        "return atomic_compare_exchange_weak_explicit(&a, &b, c, memory_order_relaxed, "
        "memory_order_relaxed);"]
    assert changed("__atomic_store_n(&a, 1, __ATOMIC_RELEASE);", "order") == [
        "__atomic_store_n(&a, 1, __ATOMIC_RELAXED);"]
    assert changed("return atomic_load_explicit(&a, memory_order_relaxed);", "order") == []


def test_lock_goes_with_all_its_unlocks():
    body = ("fw_mutex_lock(&a->lock);\nfw_mutex_lock(&b);\n"
            "if (x) { fw_mutex_unlock(&b); fw_mutex_unlock(&a->lock); return 1; }\n"
            "fw_mutex_unlock(&b);\nfw_mutex_unlock(&a->lock);\nreturn 2;")
    first, second = changed(body, "lock")
    assert first == (";\nfw_mutex_lock(&b);\nif (x) { fw_mutex_unlock(&b); ; return 1; }\n"
                     "fw_mutex_unlock(&b);\n;\nreturn 2;")
    assert "&a->lock" in second and "&b" not in second
    assert all("return" not in text.split(";")[0] for text in changed(body, "drop"))
    assert len(changed(body, "drop")) == 1  # The return; the locks are not dropped one by one.


def test_lock_replaces_tries_and_values():
    assert changed("if (!fw_mutex_trylock(&a)) { return 1; }\nfw_mutex_unlock(&a);\nreturn 2;",
                   "lock") == ["if (!true) { return 1; }\n;\nreturn 2;"]
    assert changed("int rc = pthread_mutex_lock(&a); return rc;", "lock") == [
        "int rc = 0; return rc;"]
    assert changed("int rc = pthread_mutex_unlock(&a); return rc;", "lock") == [
        "int rc = 0; return rc;"]


def test_a_lock_without_its_unlock_is_an_ordinary_statement():
    assert changed("fw_mutex_lock(&a);", head="void f(void)") == [";"]


def test_flush():
    assert changed("fsync(fd); return ring_flush(ring);", "flush") == [
        "0; return ring_flush(ring);", "fsync(fd); return 0;"]
    assert changed("int rc = fw_disk_start(disk, &own->flush_op);", "flush") == ["int rc = 0;"]
    assert changed("int rc = fw_disk_start(disk, &op);", "flush") == []
    assert changed("fsync(fd); (void)fdatasync(fd); ring_flush(ring);", "drop") == []


def test_jump():
    assert changed("for (;;) { if (a) { break; } continue; }", "jump") == [
        "for (;;) { if (a) { continue; } continue; }", "for (;;) { if (a) { break; } break; }"]
    assert changed("for (;;) { switch (a) { case 1: break; default: g(); } }", "jump") == [
        "for (;;) { switch (a) { case 1: ; default: g(); } }"]


def test_value():
    assert changed("return 0;", "value") == ["return -1;"]
    assert changed("return true;", "value") == ["return false;"]
    assert sorted(changed("return -EINVAL;", "value")) == [
        "return (-EINVAL - 1);", "return 0;"]
    assert changed("return a - EXTRA;", "value") == []
    assert changed("if (rc == -EAGAIN) { g(); }", "value") == []


def test_mutants_are_the_same_each_time_and_know_their_place():
    code = in_function("    return a < b &&\n        c;")
    mutants = mutants_of("src/m/f.c", code)
    assert mutants == mutants_of("src/m/f.c", code)
    compare = next(m for m in mutants if m.operator == "compare")
    assert (compare.place, compare.function) == ("src/m/f.c:3:14", "f")
    assert (compare.before, compare.after) == ("return a < b &&", "return a <= b &&")
    assert len(set(mutants)) == len(mutants)


def test_lines_are_shown_without_comments():
    code = in_function("return a < b; /* why */ // and how")
    assert {m.before for m in mutants_of("src/m/f.c", code)} == {"return a < b;"}


def test_our_own_sources_can_be_split():
    for path in sorted(ROOT.glob("src/*/*.[ch]")):
        for mutant in mutants_of(str(path), path.read_text()):
            assert mutant.operator in OPERATORS


# Survivors that were explained, and counting.

def small_mutants():
    return mutants_of("src/m/f.c", in_function("return a < b;"))


def test_explained_survivors_are_not_killed_ones():
    compare, bound = small_mutants()
    entries = allowed.parse(f"# A comment.\n\n{allowed.show(compare)}\nNobody\ncan tell.\n")
    results = [(compare, Outcome("survived", "")), (bound, Outcome("killed", "x"))]
    report = Report(results, entries, [compare, bound])
    assert ratio(report.counts()) == 0.5
    assert report.counts() == {"explained": 1, "killed": 1}
    assert report.reasons == {compare: "Nobody can tell."}
    assert report.unexplained() == [] and report.stale == [] and report.needless == []
    assert "Nobody can tell." in report.text() and "50.0 %" in report.text()


def test_equivalent_and_unbuilt_mutants_are_not_counted():
    compare, bound = small_mutants()
    report = Report([(compare, Outcome("equivalent", "")), (bound, Outcome("build-failed", ""))],
                    [], [compare, bound])
    assert ratio(report.counts()) is None
    assert json.loads(report.json("7"))["kill_ratio"] is None


def test_stale_and_needless_entries_are_reported():
    compare, bound = small_mutants()
    text = (f"{allowed.show(compare)}\nKilled in truth.\n\n"
            "src/m/f.c: g: drop\n- g();\n+ ;\nGone long ago.\n\n"
            "src/other/f.c: g: drop\n- g();\n+ ;\nNot looked at in this run.\n")
    report = Report([(compare, Outcome("killed", ""))], allowed.parse(text), [compare, bound])
    assert [entry.reason for entry in report.stale] == ["Gone long ago."]
    assert [entry.reason for entry in report.needless] == ["Killed in truth."]


@pytest.mark.parametrize("text", [
    "src/m/f.c: f\n- a\n+ b\nreason", "src/m/f.c: f: drop\n- a\nreason",
    "src/m/f.c: f: drop\n- a\n+ b"])
def test_entries_need_all_their_parts(text):
    with pytest.raises(MutateError, match="mutants.allowed:1"):
        allowed.parse(text)


def test_our_own_explanations_fit():
    entries = [entry for path in (ROOT / "tools").glob("mutants*.allowed")
               for entry in allowed.parse(path.read_text(), path.name)]
    for entry in entries:
        mutants = mutants_of(entry.path, (ROOT / entry.path).read_text())
        assert any(entry.fits(m) for m in mutants), f"{entry.source}:{entry.line} is stale"


# Sharing out and running.

@pytest.mark.parametrize("path, expected", [
    ("src/m/option.c", ["m/option", "m/option-again"]),
    ("src/m/option_file.c", ["m/option", "m/option-again"]),
    ("src/m/disk.c", ["m/disk"]),
    ("src/m/disk_file.c", ["m/disk_file"]),
    ("src/m/other_file.h", []),
])
def test_tests_of_a_file_are_those_of_its_name_or_of_what_it_is_part_of(path, expected):
    names = ["m/option", "m/option-again", "m/disk", "m/disk_file", "fuzz/m-option"]
    tests = [build.Test(name, [], {}, ".", False, []) for name in names]
    assert [test.name for test in own_tests(path, tests)] == expected


def test_all_items_are_done_once_whoever_is_slow():
    done = []
    schedule.run(list(range(100)), ["a", "b", "c"], lambda who, item: done.append(item), None)
    assert sorted(done) == list(range(100))


def test_who_has_finished_helps_who_is_slow():
    others_done = threading.Event()
    done = []
    helped = []

    def act(_, item):
        if item == 0:  # Its worker gets no further until all else is done.
            helped.append(others_done.wait(timeout=60))
            return
        done.append(item)
        if len(done) == 99:
            others_done.set()

    schedule.run(list(range(100)), ["a", "b"], act, None)
    assert helped == [True]


def test_an_error_of_one_worker_is_everyones():
    stopped = []

    def fail(_, item):
        if item == 3:
            raise MutateError("three")

    with pytest.raises(MutateError, match="three"):
        schedule.run(list(range(10)), ["a", "b"], fail, lambda: stopped.append(True))
    assert stopped


def has_ended(number):
    try:
        stat = pathlib.Path(f"/proc/{number}/stat").read_text()
    except OSError:
        return True
    return stat.split()[2] in "ZX"


def test_a_hanging_process_is_killed_with_its_children(tmp_path):
    script = "sleep 1000 & echo $! >child.new; mv child.new child; wait"
    for limit in (3, 30, 120):  # The first is enough unless the machine is so busy that the shell has not begun by then.
        ended = process.run(["sh", "-c", script], tmp_path, limit=limit)
        assert ended.timed_out
        if (tmp_path / "child").exists():
            break
    child = int((tmp_path / "child").read_text())
    while not has_ended(child):  # A child that lives on runs into the test's time limit.
        time.sleep(0.01)


# The whole tool.

MESON = """
project('tiny', 'c', default_options: ['c_std=gnu17', 'werror=true', 'warning_level=3'])
threads = dependency('threads')
foreach module, tests : {'good': ['sum', 'flag'], 'useless': ['sum']}
  foreach name : tests
    test(module + '/' + name,
      executable(module + '_' + name, 'src' / module / name + '.c',
        'src' / module / name + '_test.c', dependencies: threads))
  endforeach
endforeach
library = static_library('far', 'src/far/part.c')
foreach name : ['alone', 'user']
  test('far/' + name,
    executable('far_' + name, 'src/far' / name + '_test.c', link_with: library))
endforeach
"""

SUM = """int sum(int from, int to);
int sum(int from, int to)
{
    int total = 0;
    for (int i = from; i < to; i++) {
        total += i;
    }
    int unused = 0;
    unused = total;
    return total;
}
"""

SUM_TEST = """int sum(int from, int to);
int main(void)
{
    return %s ? 0 : 1;
}
"""

FLAG = """#include <stdatomic.h>
#include <stdbool.h>
void publish(int value);
int fetch(void);
static int data;
static _Atomic bool ready;
void publish(int value)
{
    data = value;
    atomic_store_explicit(&ready, true, memory_order_release);
}
int fetch(void)
{
    while (!atomic_load_explicit(&ready, memory_order_acquire)) {
    }
    return data;
}
"""

FLAG_TEST = """#include <pthread.h>
#include <stddef.h>
void publish(int value);
int fetch(void);
static void *run(void *argument)
{
    publish(42);
    return argument;
}
int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL) != 0) {
        return 1;
    }
    int got = fetch();
    (void)pthread_join(thread, NULL);
    return got == 42 ? 0 : 1;
}
"""

@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    root = tmp_path_factory.mktemp("tiny")
    files = {
        "meson.build": MESON,
        "meson_options.txt": "option('checks', type: 'boolean', value: false)\n",
        "src/good/sum.c": SUM,
        "src/good/sum_test.c": SUM_TEST % "(sum(1, 4) == 6 && sum(2, 2) == 0)",
        "src/good/flag.c": FLAG,
        "src/good/flag_test.c": FLAG_TEST,
        "src/useless/sum.c": SUM,
        "src/useless/sum_test.c": SUM_TEST % "(sum(1, 4) || 1)",
        "src/bare/sum.c": SUM,
        "src/far/part.c": SUM,
        "src/far/alone_test.c": "int main(void) { return 0; }\n",
        "src/far/user_test.c": SUM_TEST % "(sum(1, 4) == 6 && sum(2, 2) == 0)",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def mutate(root, *arguments):
    return subprocess.run([ROOT / "tools" / "mutate", "--root", root, *arguments],
                          capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def measured(tiny):
    before = {path: path.read_bytes() for path in tiny.rglob("*") if path.is_file()}
    done = mutate(tiny, "--json", "--time-limit", "2", "all")
    assert done.returncode == 0, done.stderr
    after = {path: path.read_bytes() for path in tiny.rglob("*") if path.is_file()}
    assert before == after  # Nothing is written to the user's tree.
    assert "module bare was not measured: there are no tests named bare/*" in done.stderr
    return json.loads(done.stdout)


def states(measured, **wanted):
    return {m["state"] for m in measured["mutants"]
            if all(m[key] == value for key, value in wanted.items())}


def test_a_good_test_kills_and_a_useless_one_does_not(measured):
    assert measured["modules"]["good"] == 1.0
    assert measured["modules"]["useless"] < 0.5  # Only what hangs or is undefined.
    assert states(measured, file="src/useless/sum.c", operator="compare") == {"survived"}


def test_a_test_of_another_name_kills_if_it_links_the_file(measured):
    assert measured["modules"]["far"] == 1.0
    assert all(m["why"].startswith("far/user ") for m in measured["mutants"]
               if m["file"] == "src/far/part.c" and m["state"] == "killed")


def test_same_object_code_is_equivalent(measured):
    equal = [m for m in measured["mutants"] if m["state"] == "equivalent"]
    assert {m["before"] for m in equal} >= {"unused = total;", "int unused = 0;"}
    assert all(m["why"] == "same object code" for m in equal)


def test_tsan_judges_memory_orders(measured):
    orders = [m for m in measured["mutants"] if m["operator"] == "order"]
    assert len(orders) == 2
    assert all(m["state"] == "killed" and "(tsan)" in m["why"] for m in orders)


def test_a_hang_is_a_kill(measured):
    [endless] = [m for m in measured["mutants"]
                 if m["operator"] == "drop" and "ready, true" in m["before"]]
    assert endless["state"] == "killed" and "still running" in endless["why"]


def test_modules_without_tests_are_not_measured(measured):
    assert states(measured, file="src/bare/sum.c") == set()


def test_a_sample_depends_on_its_seed_alone(tiny):
    def sample(seed):
        return mutate(tiny, "--list", "--sample", "5", "--seed", seed, "all").stdout
    assert sample("one") == sample("one")
    assert sample("one") != sample("two")
    assert sample("one").endswith("# 5 mutants\n")


def test_a_sample_of_each_file(tiny):
    listed = mutate(tiny, "--list", "--sample", "2", "--each", "--seed", "one", "all").stdout
    places = [line.split(":")[0] for line in listed.splitlines() if line.startswith("# src/")]
    everything = mutate(tiny, "--list", "all").stdout
    files = {line.split(":")[0] for line in everything.splitlines() if line.startswith("# src/")}
    assert len(files) > 1 and sorted(places) == sorted(2 * list(files))
    done = mutate(tiny, "--list", "--each", "all")
    assert done.returncode == 2 and "--each needs --sample" in done.stderr


def test_time_is_bounded_and_what_was_not_reached_is_told(tiny):
    done = mutate(tiny, "--sample", "3", "--minutes", "0", "--json", "good")
    assert done.returncode == 0, done.stderr
    assert "3 of 3 mutants were not reached in 0 minutes" in done.stderr
    found = json.loads(done.stdout)
    assert found["mutants"] == [] and found["kill_ratio"] is None
    done = mutate(tiny, "--sample", "3", "--minutes", "60", "--json", "good")
    assert done.returncode == 0 and "not reached" not in done.stderr
    assert len(json.loads(done.stdout)["mutants"]) == 3
    done = mutate(tiny, "--minutes", "1", "good")
    assert done.returncode == 2 and "--minutes needs --sample" in done.stderr


def test_draws_are_recorded(tiny, tmp_path):
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "mutation.md"
    page.write_text(f"before\n{record.BEGIN}old\n{record.END}after\n")
    for seed in ("one", "two", "two"):
        done = mutate(tmp_path, "--sample", "2", "--seed", seed, "--record", "useless")
        assert done.returncode == 0, done.stderr
    draws = record.read(tmp_path)["useless"]
    assert [draw["seed"] for draw in draws] == ["one", "two"]
    assert page.read_text() == (f"before\n{record.BEGIN}{record.table({'useless': draws})}"
                                f"{record.END}after\n")
    for wrong in (["useless"], ["--sample", "2", "src/good/sum.c"],
                  ["--sample", "2", "--each", "useless"]):
        assert mutate(tmp_path, "--record", *wrong).returncode == 2


def test_the_table_adds_draws_up():
    modules = {"io": [{"seed": "a", "mutants": 1900, "killed": 8, "survived": 1, "equivalent": 1},
                      {"seed": "b", "mutants": 2000, "killed": 8, "explained": 3}],
               "base": [{"seed": "a", "mutants": 10, "duplicate": 1}]}
    assert record.rows(modules) == [
        ["base", "10", "1", "1", "1", "0", "0", "0", "", "0 to 100 %"],
        ["io", "2,000", "2", "21", "1", "16", "3", "1", "80.0 %", "58 to 92 %"],
        ["all", "2,010", "3", "22", "2", "16", "3", "1", "80.0 %", "58 to 92 %"]]
    low, high = record.interval(10, 10)
    assert 0.7 < low < 0.75 and high == 1


def test_the_page_shows_what_is_recorded():
    text = (ROOT / record.PAGE).read_text(encoding="utf-8")
    assert record.page_with(text, record.read(ROOT)) == text
    with pytest.raises(ValueError, match="no place"):
        record.page_with("a page without it", {})


def test_minimum_fails_a_useless_test(tiny):
    done = mutate(tiny, "--operators", "compare", "--minimum", "85", "useless")
    assert done.returncode == 1, done.stderr
    assert ("- for (int i = from; i < to; i++) {\n"
            "+ for (int i = from; i <= to; i++) {\n") in done.stdout


def test_a_test_that_fails_already_is_an_error(tiny, tmp_path):
    (tmp_path / "broken").mkdir()
    subprocess.run(["cp", "-r", f"{tiny}/.", tmp_path / "broken"], check=True)
    (tmp_path / "broken/src/useless/sum_test.c").write_text(SUM_TEST % "(sum(1, 4) == 0)")
    done = mutate(tmp_path / "broken", "--operators", "compare", "useless")
    assert done.returncode == 2
    assert "useless/sum fails on the code as it is" in done.stderr
    done = mutate(tmp_path / "broken", "--operators", "compare", "useless", "good")
    assert done.returncode == 1  # The others are measured all the same.
    assert "module useless was not measured" in done.stderr and "module good" in done.stdout


def test_files_are_named_from_the_root_or_from_here(tiny):
    named = [mutate(tiny, "--list", path).stdout
             for path in ("src/good/sum.c", tiny / "src" / "good" / "sum.c")]
    assert named[0] == named[1] and "# src/good/sum.c:4:17" in named[0]
    done = mutate(tiny, "--list", "src/good/sum_test.c")
    assert done.returncode == 2 and "no tests" in done.stderr


def test_unknown_modules_are_an_error(tiny):
    done = mutate(tiny, "godo")
    assert done.returncode == 2
    assert "the modules are bare, far, good, useless" in done.stderr
