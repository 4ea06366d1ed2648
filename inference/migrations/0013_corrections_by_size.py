from typing import Any

from django.db import migrations

GONE = ("correction_low", "correction_high", "correction_alpha")


def forget(apps: Any, schema_editor: Any) -> None:
    """Settings that are no more: one that is not known would have all that the admin has changed refused."""
    for row in apps.get_model("inference", "SchedulerTuning").objects.all():
        kept = {name: value for name, value in row.values.get("prediction", {}).items() if name not in GONE}
        if kept != row.values.get("prediction", {}):
            row.values["prediction"] = kept
            row.save()


class Migration(migrations.Migration):
    dependencies = [("inference", "0012_what_older_processes_leave_out")]

    operations = [migrations.RunPython(forget, migrations.RunPython.noop)]
