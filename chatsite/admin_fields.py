"""Form fields of the admin that take hand-made values without breaking."""

from collections.abc import Sequence
from typing import Any

from django.contrib.admin.widgets import AutocompleteSelect
from django.core.exceptions import ValidationError
from django.db.models import CharField, Field, ForeignKey
from django.http import HttpRequest

from chatsite import typed
from chatsite.text_checks import check_line


def is_value(field: Any, text: object) -> bool:
    """Whether the database could have `text` in this field."""
    field = getattr(field, "target_field", field)
    try:
        field.run_validators(field.to_python(text))
    except ValidationError:
        return False
    return "\0" not in str(text)


class KeySelect(AutocompleteSelect):
    """Shows what was chosen; nothing for what cannot be a key, of which the field says that it is wrong."""

    def optgroups(self, name: str, value: Sequence[str], attr: Any = None) -> Any:
        return super().optgroups(name, [each for each in value if is_value(self.field, each)], attr)


class CheckedFields:
    """Of admins and inlines: names are lines of text that can be seen, keys are keys, numbers and dates are plain."""

    def formfield_for_dbfield(self, db_field: Field, request: HttpRequest, **kwargs: Any) -> Any:
        if made := typed.field_for(db_field):
            kwargs.setdefault("form_class", made)
        field: Any = super().formfield_for_dbfield(db_field, request, **kwargs)  # type: ignore[misc]
        if field is not None and type(db_field) is CharField and not db_field.choices:
            field.validators.append(check_line)
        return field

    def formfield_for_foreignkey(self, db_field: ForeignKey, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name in self.get_autocomplete_fields(request):  # type: ignore[attr-defined]
            kwargs.setdefault("widget", KeySelect(db_field, self.admin_site, using=kwargs.get("using")))  # type: ignore[attr-defined]
        return super().formfield_for_foreignkey(db_field, request, **kwargs)  # type: ignore[misc]
