"""Forms of accounts. allauth's are kept for what they do; ours say it in fewer words and bound what they take."""

from typing import Any, Final

from allauth.account import forms as base
from allauth.account.fields import EmailField, PasswordField
from allauth.socialaccount import forms as social
from django import forms
from django.core.validators import MaxLengthValidator
from django.db import IntegrityError, transaction
from django.http import HttpRequest

from chatsite.accounts import invitations, services
from chatsite.accounts.models import User
from chatsite.text_checks import check_line

MAX_PASSWORD: Final = 1000  # characters
MAX_EMAIL: Final = 254
NEW_PASSWORD_HELP: Final = "At least 8 characters, and not one that many people use."


class LineField(forms.CharField):
    """One line of text that people read."""

    default_validators = [check_line]


class Plain:
    """Labels say what a field is; a placeholder would say it twice, and go when one types."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():  # type: ignore[attr-defined]
            field.widget.attrs.pop("placeholder", None)
            if isinstance(field, EmailField):
                field.validators.append(MaxLengthValidator(MAX_EMAIL))  # else it would be cut off
            if isinstance(field, PasswordField):
                field.validators.append(MaxLengthValidator(MAX_PASSWORD))
                new = field.widget.attrs.get("autocomplete") == "new-password"
                field.help_text = NEW_PASSWORD_HELP if new else ""


class LoginForm(Plain, base.LoginForm):
    pass


class SignupForm(Plain, base.SignupForm):
    """`account_already_exists` is not shown: whoever owns the address is told by mail."""

    name = LineField(
        label="Name (optional)",
        required=False,
        max_length=User._meta.get_field("name").max_length,
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )
    invitation = forms.CharField(required=False, max_length=invitations.MAX_TOKEN, widget=forms.HiddenInput)
    field_order = ["email", "name", "password1"]

    def validate_unique_email(self, value: str) -> str:
        """Only the address that an account has counts, not one that somebody means to change to."""
        self.account_already_exists = User.objects.filter(email=value).exists()
        return value

    def try_save(self, request: HttpRequest) -> Any:
        if self.account_already_exists:
            User().set_password(self.cleaned_data["password1"])  # takes as long as making the account would
            return super().try_save(request)
        try:
            with transaction.atomic():
                return super().try_save(request)
        except IntegrityError:  # the same address signed up in this moment
            self.account_already_exists = True
            return super().try_save(request)


class SocialSignupForm(Plain, social.SignupForm):
    """Asked only where the identity provider does not tell an address."""


class AddEmailForm(Plain, base.AddEmailForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["email"].label = "New email"


class ChangePasswordForm(Plain, base.ChangePasswordForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["oldpassword"].label = "Current password"
        _one_new_password(self)


class SetPasswordForm(Plain, base.SetPasswordForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _one_new_password(self)


class ResetPasswordForm(Plain, base.ResetPasswordForm):
    def clean_email(self) -> str:
        """A link goes only to the address that the account has, not to one that somebody means to change to."""
        email: str = self.cleaned_data["email"]
        self.users = list(User.objects.filter(email=email, is_active=True))
        return email


class ResetPasswordKeyForm(Plain, base.ResetPasswordKeyForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _one_new_password(self)

    def save(self) -> None:
        """The link was in a mail to the account's address, so whoever has followed it owns that."""
        super().save()
        services.prove_address(self.user)


class ReauthenticateForm(Plain, base.ReauthenticateForm):
    pass


class ConfirmReauthenticationCodeForm(Plain, base.ConfirmReauthenticationCodeForm):
    pass


def _one_new_password(form: Any) -> None:
    """Typed once: a browser or a person can look at it, and a reset mends a slip."""
    form.fields["password1"].label = "New password"
    del form.fields["password2"]


class NameForm(forms.Form):
    name = LineField(
        label="Name",
        required=False,
        max_length=User._meta.get_field("name").max_length,
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )
