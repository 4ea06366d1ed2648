"""Forms of organizations: a name, an invitation, what a member is and may use."""

from typing import Any, Final

from allauth.account.fields import EmailField
from django import forms

from chatsite.accounts import roles
from chatsite.accounts.forms import MAX_EMAIL, LineField
from chatsite.accounts.limit_forms import LimitsForm
from chatsite.accounts.models import LIMITS, Membership, Organization
from chatsite.accounts.roles import Role

WRONG_ROLE: Final = {"invalid_choice": "Choose among the roles that are offered.", "required": "Choose a role."}


class OrganizationForm(forms.Form):
    name = LineField(
        label="Name",
        max_length=Organization._meta.get_field("name").max_length,
        widget=forms.TextInput(attrs={"autocomplete": "organization"}),
        error_messages={"required": "Give the organization a name."},
    )


def _choices(mine: str) -> list[tuple[str, str]]:
    return [(str(each), each.capitalize()) for each in roles.grantable(mine)]


class InviteForm(forms.Form):
    """`mine`: the role of whoever invites."""

    email = EmailField(label="Email", max_length=MAX_EMAIL, error_messages={"required": "Write an address."})
    role = forms.ChoiceField(label="Role", initial=Role.MEMBER, error_messages=WRONG_ROLE)

    def __init__(self, data: Any = None, *, mine: str) -> None:
        super().__init__(data, auto_id="invite_%s")
        self.fields["role"].choices = _choices(mine)  # type: ignore[attr-defined]
        self.fields["email"].widget.attrs.update({"autocomplete": "off"})
        self.fields["email"].widget.attrs.pop("placeholder", None)


class MemberForm(LimitsForm):
    """The role and the limits of a member. `mine`: the role of whoever changes them."""

    role = forms.ChoiceField(label="Role", widget=forms.RadioSelect, error_messages=WRONG_ROLE)

    def __init__(self, data: Any = None, *, place: Membership, mine: str) -> None:
        super().__init__(data, initial={"role": place.role, **{name: getattr(place, name) for name in LIMITS}})
        self.fields["role"].choices = _choices(mine)  # type: ignore[attr-defined]

    def explained(self) -> list[tuple[Any, str]]:
        """The buttons of the roles, each with what it means."""
        return [(button, roles.EXPLAINED[Role(button.data["value"])]) for button in self["role"]]
