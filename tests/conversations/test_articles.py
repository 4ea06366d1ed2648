"""Turns as a page shows them: where the model's view begins, and their versions."""

from conversations.articles import load_article, load_branch
from conversations.models import Conversation, Message
from tests.conftest import Person
from tests.conversations.pages import add_reply, add_turn, make_conversation


def cuts(person: Person, conversation: Conversation) -> list[bool]:
    return [article.cut for article in load_branch(person.principal, conversation.id).articles if article.request_id]


def test_s17_what_is_left_out_is_said_once_for_each_cut(person: Person) -> None:
    conversation = make_conversation(person)
    for left_out in (0, 2, 2, 4, 4):
        last = add_turn(conversation, "q", "a", left_out=left_out)
        assert load_article(person.principal, last.id).cut is cuts(person, conversation)[-1]
    assert cuts(person, conversation) == [False, True, False, True, False]


def test_a_page_of_earlier_turns_knows_what_was_said_before_it(person: Person) -> None:
    conversation = make_conversation(person)
    for left_out in (0, 2, *[2] * 30):
        add_turn(conversation, "q", "a", left_out=left_out)
    newest = load_branch(person.principal, conversation.id)
    assert not any(article.cut for article in newest.articles)
    earlier = load_branch(person.principal, conversation.id, newest.earlier)
    assert sum(article.cut for article in earlier.articles) == 1


def test_s16_both_sides_have_versions(person: Person) -> None:
    conversation = make_conversation(person)
    first = add_turn(conversation, "q1", "a1")
    second = add_reply(conversation, Message.objects.get(id=first.parent_id), "a2")
    conversation.active_leaf = None
    edited = add_turn(conversation, "q2", "b")
    question, reply = load_branch(person.principal, conversation.id).articles
    assert (question.id, question.version, list(question.siblings)) == (
        edited.parent_id,
        2,
        [first.parent_id, edited.parent_id],
    )
    assert list(reply.siblings) == [edited.id]
    assert load_article(person.principal, second.id).version == 2
    other = make_conversation(person, "Another")
    add_turn(other, "q", "a")
    assert len(load_branch(person.principal, other.id).articles[0].siblings) == 1  # not those of other conversations
