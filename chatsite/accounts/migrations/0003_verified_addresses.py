"""Who had an account before addresses were verified keeps it: their addresses count as verified."""

from django.db import migrations


def verify(apps, schema_editor):
    User = apps.get_model("accounts", "User")
    EmailAddress = apps.get_model("account", "EmailAddress")
    without = User.objects.filter(emailaddress=None).only("pk", "email")
    rows = (EmailAddress(user_id=user.pk, email=user.email, primary=True, verified=True) for user in without.iterator())
    EmailAddress.objects.bulk_create(rows, batch_size=1000, ignore_conflicts=True)


class Migration(migrations.Migration):

    dependencies = [
        ("accounts", "0002_email_in_any_case"),
        ("account", "0009_emailaddress_unique_primary_email"),
    ]

    operations = [migrations.RunPython(verify, migrations.RunPython.noop)]
