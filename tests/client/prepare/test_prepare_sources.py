"""Each source's construction against texts written out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from prepare_samples import COMMIT, HUB, FakeTables, exam_row, unfilled, with_template

import specsweep.client.workload.prepare.sources  # noqa: F401 - registers them
from specsweep.client.workload import buckets
from specsweep.client.workload.prepare.errors import RowError
from specsweep.client.workload.prepare.registry import Context, Filled, Quirks, source_of
from specsweep.client.workload.prepare.sources.exam import halves
from specsweep.client.workload.prepare.texts import SORT_ASKS_ORDER, SORT_ASKS_TEXT
from specsweep.client.workload.rows import PLACEHOLDER, Row


def fill(row: Row, tables: FakeTables, target: int | None = None, quirks: Quirks = "official") -> Filled:
    return fill_in(Context(tables, target, quirks), row)


def fill_in(context: Context, row: Row) -> Filled:
    source = source_of(row)
    assert source is not None
    return source.fill(row, context)


def test_a_programming_task_goes_into_the_published_template() -> None:
    row = unfilled("1", f"{HUB}/livecodebench/code_generation_lite", "abc", turns=with_template("In Rust:\n{question}\n{starter_code}"))
    tasks = [{"question_id": "abc", "question_content": "Add {two} numbers.", "starter_code": "fn f() {}"}]
    assert fill(row, FakeTables(livecodebench=tasks)).turns == ("In Rust:\nAdd {two} numbers.\nfn f() {}",)


def test_a_template_that_asks_for_something_else_is_an_error_of_that_row() -> None:
    row = unfilled("1", f"{HUB}/deepmind/code_contests", "n", turns=with_template("{other}"))
    with pytest.raises(RowError, match="template cannot be filled"):
        fill(row, FakeTables(codecontests=[{"name": "n", "description": "d"}]))


def test_multiple_choice_names_the_subject_once_and_takes_the_rows_that_follow() -> None:
    questions = [
        {"question": "unused", "options": []},
        {"question": "Why?", "options": ["yes", "no"]},
        {"question": "How?", "options": ["so"]},
    ]
    row = unfilled("1", f"{HUB}/TIGER-Lab/MMLU-Pro", "mmlu_pro_(1, 'law')", turns=(PLACEHOLDER, PLACEHOLDER), sub_category="law")
    assert fill(row, FakeTables(MMLUPro=questions)).turns == (
        "The following are multiple choice questions (with answers) about law. Think step by step and then finish your answer with "
        '"the answer is (X)" where X is the correct letter choice.\n\nQuestion: Why?\n\nOptions: (A) yes\n(B) no\n\n',
        "Question: How?\n\nOptions: (A) so\n\n",
    )


def test_all_passages_stand_before_the_first_question() -> None:
    entry = {
        "ctxs": [{"text": "one"}, {"text": "two"}],
        "messages": [{"role": "user", "content": "q1"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "q2"}],
    }
    row = unfilled("1", f"{HUB}/nvidia/ChatRAG-Bench", "chatrag_bench_1")
    assert fill(row, FakeTables(ChatRAG=[{}, entry])).turns == (
        "Please give a full and complete answer for the questions. \n\nContext:\none\n\ntwo\n\nQuestion:\nq1",
        "q2",
    )


def test_a_translation_template_picks_its_language_out_of_the_pair() -> None:
    row = unfilled("1", f"{HUB}/Helsinki-NLP/opus-100", "opus100_de-en_0", turns=with_template("German to English: {question[de]}"))
    assert fill(row, FakeTables(opus100=[{"translation": {"de": "Ja", "en": "Yes"}}])).turns == ("German to English: Ja",)


def test_only_the_user_s_messages_of_a_dialogue_are_turns() -> None:
    row = unfilled("1", "https://raw.githubusercontent.com/mtbench101/mt-bench-101/x.jsonl", "mtbench_101_0")
    history = [{"user": "u1", "bot": "b1"}, {"user": "u2", "bot": "b2"}]
    assert fill(row, FakeTables(mtbench101=[{"history": history}])).turns == ("u1", "u2")


def test_later_questions_to_a_role_do_not_name_it_again() -> None:
    source = f"{HUB}/ZenMoore/RoleBench/tree/{COMMIT}/rolebench-eng"
    template = with_template("You are {role_name}. {role_description_and_catchphrases}")[0]
    row = unfilled(
        "1", source, "rolebench_instruction-generalization_2_rolebench_instruction-generalization_0_x_1", turns=(template, "", "")
    )
    asked = [{"role": "Amy", "question": q} for q in ("Amy, why?", " Amy,how?", "Amy, who are you?")]
    tables = FakeTables(descjson=[{"Amy": "A singer."}], RoleBench=asked)
    assert fill(row, tables).turns == ("You are Amy. A singer.\nAmy, who are you?", "why?", "how?")


SCENE = {
    "book": "Emma",
    "scenario": "A ball.",
    "major_characters": ["Ann", "Bob", "Cyd"],
    "character_profiles": {"Cyd": "old", "Ann": "young", "Bob": "tall", "Dan": None},
    "key_characters": [{"name": "Ann", "motivation": "to dance"}, {"name": "Bob", "motivation": "to leave"}],
}


def test_coser_is_a_user_turn_of_the_character_that_the_seed_draws() -> None:
    character = str(np.random.default_rng(12347).choice(["Ann", "Bob", "Cyd"]))
    profile, wish, others = {
        "Ann": ("young", "to dance", "Cyd: old\n\nBob: tall"),
        "Bob": ("tall", "to leave", "Cyd: old\n\nAnn: young"),
        "Cyd": ("old", "No motivation provided", "Ann: young\n\nBob: tall"),
    }[character]
    source = f"{HUB}/Neph0s/CoSER/tree/{COMMIT}"
    context = Context(FakeTables(CoSER=[SCENE, SCENE]), None, "official")
    filled = fill_in(context, unfilled("1", source, "coser_0"))
    assert filled.turns == (
        f"You are {character} from Emma.\n==={character}'s Profile===\n{profile}\n===Current Scenario===\nA ball.\n"
        f"===Information about the other Characters===\n{others}\n===Your Inner Thoughts===\n{wish}\n\n===Requirements===\n"
        "Your output should include **thought**, **speech**, and **action**. Use [your thought]\n"
        "for thoughts, which others can't see, e.g. [I'm terrified, but I must appear strong.]. Use\n"
        "(your action) for actions, which others can see, such as (watches silently, trying to control\nher fear and anger).",
    )
    assert fill_in(context, unfilled("2", source, "coser_1")) == filled  # seeded again for every row


def test_several_dialogues_are_numbered_and_cut_at_the_target() -> None:
    row = unfilled("1", "https://raw.githubusercontent.com/RUCAIBox/BAMBOO/x.jsonl", "bamboo_1_bamboo_0")
    text = fill(row, FakeTables(BAMBOO=[{"content": "Ann: hi"}, {"content": "Bob: ho"}]), 1000).turns[0]
    assert (
        "is given below.\n\n\nSTART CONTENT 1\n\nBob: ho\n\nEND CONTENT\n\nSTART CONTENT 2\n\nAnn: hi\n\nEND CONTENT\nAnswer now please.\n"
        in text
    )
    assert buckets.count(text) == 1000


def test_textsort_asks_for_the_text_and_not_for_its_order() -> None:
    row = unfilled("1", "http://x/AdaLEval/textsort_1k.json", "textsort_0")
    prompt = SORT_ASKS_ORDER + "Before: a"
    text = fill(row, FakeTables(textsort=[{"prompt": prompt}]), 1000).turns[0]
    assert text.startswith(SORT_ASKS_TEXT + "Before: a")
    assert "return the answer in a string" not in text


STACK = "http://x/AdaLEval/stackselect_1k.json"


def stack(answers: list[str], right: int, target: int, quirks: Quirks) -> Filled:
    entry = {"question_id": "q", "question": "Which?", "all_answers": answers, "answer": f"A{right + 1}"}
    return fill(unfilled("1", STACK, "q"), FakeTables(stackselect=[entry]), target, quirks)


def test_stackselect_takes_answers_that_fit_alone_and_is_cut() -> None:
    filled = stack(["red " * 250, "blue " * 250, "green " * 250], 0, 1000, "official")
    assert "longer than the target" in filled.notes[0]
    assert buckets.count(filled.turns[0]) == 1000
    assert not filled.turns[0].endswith("do not choose this answer.\n")


def test_stackselect_shuffles_with_42_and_numbers_anew() -> None:
    text = stack(["red", "blue", "green", "pink"], 3, 1000, "official").turns[0]
    shown = ["pink", "red", "blue", "green"]
    order = [2, 1, 3, 0]  # random.seed(42); random.shuffle([0, 1, 2, 3])
    listed = "".join(f"A{n + 1}:\n\n{shown[i]}\n\n" for n, i in enumerate(order))
    assert f"The question is given below.\nWhich?\n\nPossible answers are given below.\n{listed}Now the answers are over" in text


def test_plain_stackselect_keeps_the_right_answer_and_the_closing_request() -> None:
    text = stack(["red " * 250, "blue " * 250, "green " * 250], 2, 1000, "plain").turns[0]
    assert "green green" in text
    assert "For every other answer, you must give me the reason why you do not choose this answer.\nAnswer now please." in text
    assert buckets.count(text) == 1000


EXAM = [exam_row(n, image="picture" if n == 3 else "") for n in range(12)]


def exam_question(n: int) -> Row:
    return unfilled(f"x{n}", f"{HUB}/cais/hle/tree/{COMMIT}", EXAM[n]["id"])


def test_a_qualitative_exam_row_is_the_bare_question() -> None:
    assert fill(exam_question(5), FakeTables(hle=EXAM)).turns == ("What is 5?",)


def test_the_exam_is_halved_as_a_train_test_split_with_seed_42() -> None:
    assert halves(7) == ([1, 5, 0], [3, 2, 6, 4])  # of Dataset.train_test_split(test_size=0.5, shuffle=True, seed=42)


def test_exam_prompts_share_one_generator_and_have_one_token_too_many() -> None:
    """Drawn beside it with pandas, which the official preparation uses, from the same frame."""
    demonstrations, questions = halves(len(EXAM))
    pool = pd.DataFrame(
        [{"text": f"Question: {EXAM[i]['question']}\n\nAnswer: {EXAM[i]['rationale']}\n\n"} for i in demonstrations if i != 3]
    )
    rng = np.random.default_rng(42)
    context = Context(FakeTables(hle=EXAM), 100, "official")
    for i in questions[:3]:
        asked = buckets.encode(EXAM[i]["question"])
        head = buckets.encode(
            "Please answer the question below.\n\nHere are some examples of question and answer pairs in the category of Math:\n\n"
        )
        while len(head) + len(asked) < 100:
            head += buckets.encode(pool.sample(1, random_state=rng)["text"].iloc[0])
        expected = head[: 100 - len(asked) + 1] + asked
        assert fill_in(context, exam_question(i)).turns == (buckets.decode(expected),)
        assert len(expected) == 101


def test_a_question_longer_than_the_target_is_not_cut_and_takes_the_end_of_the_intro() -> None:
    question = "Count " + "one two " * 30
    exam = [exam_row(n, question=question) for n in range(2)]
    row = unfilled("1", f"{HUB}/cais/hle", f"e{halves(2)[1][0]}")
    size = buckets.count(question)
    filled = fill(row, FakeTables(hle=exam), size - 3)
    intro = "Please answer the question below.\n\nHere are some examples of question and answer pairs in the category of Math:\n\n"
    assert filled.turns[0] == buckets.decode(buckets.encode(intro)[:-2]) + question
    assert filled.notes


def test_plain_exam_prompts_have_the_target_s_tokens_and_depend_on_the_row_alone() -> None:
    questions = halves(len(EXAM))[1]
    last = fill(exam_question(questions[2]), FakeTables(hle=EXAM), 100, "plain")
    context = Context(FakeTables(hle=EXAM), 100, "plain")
    assert [fill_in(context, exam_question(i)) for i in questions[:3]][-1] == last
    assert buckets.count(last.turns[0]) == 100


def test_a_row_that_a_source_does_not_have_names_itself() -> None:
    with pytest.raises(RowError, match="has no row with id='e99'"):
        fill(unfilled("1", f"{HUB}/cais/hle", "e99"), FakeTables(hle=EXAM))
