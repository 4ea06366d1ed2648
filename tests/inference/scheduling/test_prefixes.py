import random

from hypothesis import given
from hypothesis import strategies as st

from inference.scheduling.prefixes import (
    Matched,
    PrefixIndex,
    block_hashes,
    checkpoint_hashes,
    checkpoints,
    salt,
)
from inference.scheduling.settings import PrefixSettings

SETTINGS = PrefixSettings()
ACME, GLOBEX = salt("model", "acme"), salt("model", "globex")
RNG = random.Random(3)
IDS = [RNG.randrange(50_000) for _ in range(2000)]


def hashes(ids: list[int] = IDS, salt: bytes = ACME) -> list[int]:
    return block_hashes(ids, 16, salt)


def kept(ids: list[int] = IDS, salt: bytes = ACME) -> list[int]:
    return checkpoint_hashes(hashes(ids, salt), SETTINGS.checkpoints)


def test_only_full_blocks_have_a_hash_and_each_stands_for_all_before_it() -> None:
    assert len(hashes(IDS[:47])) == 2
    assert hashes(IDS[:15]) == []
    assert hashes(IDS)[:10] == hashes(IDS[:160])
    changed = [IDS[0] + 1, *IDS[1:]]
    assert not set(hashes(changed)) & set(hashes(IDS))


def test_invariant_12_s35_domains_and_models_never_match_each_other() -> None:
    assert not set(hashes(salt=ACME)) & set(hashes(salt=GLOBEX))
    assert salt("a", "b") != salt("b", "a") != salt("ab", "")
    index = PrefixIndex(SETTINGS, 16)
    index.add(0.0, "r", kept(salt=ACME))
    assert index.match(0.0, hashes(salt=GLOBEX)) == {}
    assert index.match(0.0, hashes(salt=ACME))["r"].tokens == 2000


def test_checkpoints_are_the_same_lengths_for_all_prompts_and_the_whole() -> None:
    assert checkpoints(0, 16) == []
    assert checkpoints(7, 16) == [1, 2, 3, 4, 6, 7]
    assert checkpoints(375, 16) == [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 375]
    assert len(checkpoints(8192, 16)) == 16


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 300))
def test_two_prompts_that_begin_alike_meet_within_a_third_of_what_they_share(shared: int, one: int, two: int) -> None:
    begin = [7] * shared * 16
    index = PrefixIndex(PrefixSettings(checkpoints=32), 16)
    index.add(0.0, "r", checkpoint_hashes(hashes(begin + [1] * one * 16), 32))
    found = index.match(0.0, hashes(begin + [2] * two * 16))["r"].tokens
    assert shared * 16 * 2 / 3 <= found <= shared * 16


def test_the_next_turn_of_a_conversation_matches_all_of_the_last() -> None:
    index = PrefixIndex(SETTINGS, 16)
    index.add(0.0, "a", kept(IDS[:1000]))
    index.add(1.0, "b", kept(IDS[:160]))
    assert index.match(2.0, hashes(IDS)) == {"a": Matched(992, 0.0), "b": Matched(160, 1.0)}


def test_points_that_were_not_used_for_ten_minutes_are_gone() -> None:
    index = PrefixIndex(SETTINGS, 16)
    index.add(0.0, "a", kept())
    assert index.match(600.0, hashes())
    assert index.match(600.1, hashes()) == {}
    index.add(601.0, "a", kept([1] * 32))
    assert len(index) == 2


def test_the_index_is_bounded_and_drops_what_was_unused_longest() -> None:
    index = PrefixIndex(PrefixSettings(most=20), 16)
    for number in range(10):
        index.add(float(number), "a", kept([number] * 64))
    assert len(index) == 20
    assert index.match(9.0, hashes([9] * 64))
    assert index.match(9.0, hashes([0] * 64)) == {}


def test_when_the_engine_had_more_the_shared_beginning_is_learned_exactly() -> None:
    index = PrefixIndex(SETTINGS, 16)
    hot = IDS[:1600]  # 100 blocks
    first, second, third = (hot + [number] * 4800 for number in range(3))
    index.add(0.0, "a", kept(first))
    expected = index.match(1.0, hashes(second))["a"]
    assert expected.tokens == 96 * 16
    index.correct(1.0, "a", hashes(second), expected, 1600)
    assert index.match(2.0, hashes(third))["a"].tokens == 1600
    points = checkpoint_hashes(hashes(third), 16, matched_blocks=100)
    assert hashes(third)[99] in points
    assert len(points) == 16


def test_when_the_engine_had_less_what_it_used_before_that_is_gone_too() -> None:
    index = PrefixIndex(SETTINGS, 16)
    old, same_time, new = ([number] * 160 for number in range(3))
    index.add(0.0, "a", kept(old))
    index.add(1.0, "a", kept(same_time))
    index.add(2.0, "a", kept(new))
    index.add(0.0, "b", kept(old))
    expected = index.match(3.0, hashes(same_time))["a"]
    longer = hashes([*same_time, *[9] * 16])
    index.add(3.0, "a", checkpoint_hashes(longer, 16, matched_blocks=expected.tokens // 16))
    index.correct(3.0, "a", hashes(same_time), expected, 0)
    assert index.match(3.0, hashes(old)) == {"b": Matched(160, 0.0)}
    assert index.match(3.0, hashes(new))["a"].tokens == 160
    assert index.match(3.0, hashes(same_time))["a"].tokens == 160  # it was prefilled just now


def test_a_correction_that_agrees_changes_nothing() -> None:
    index = PrefixIndex(SETTINGS, 16)
    index.correct(0.0, "a", hashes(), None, 0)
    assert len(index) == 0
    index.add(0.0, "a", kept())
    before = len(index)
    index.correct(0.0, "a", hashes(), index.match(0.0, hashes())["a"], 2000)
    assert len(index) == before


def test_a_replica_that_restarted_has_nothing() -> None:
    index = PrefixIndex(SETTINGS, 16)
    index.add(0.0, "a", kept())
    index.add(0.0, "b", kept())
    index.forget("a")
    index.forget("never")
    assert set(index.match(0.0, hashes())) == {"b"}
    index.forget("b")
    assert len(index) == 0
