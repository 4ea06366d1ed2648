from django.db import migrations

# The first organization that somebody owns was made with their account. One that an operator gave to others as well is
# nobody's own any more.
MARK = """
UPDATE accounts_organization SET personal_of_id = own.user_id
FROM (
    SELECT DISTINCT ON (user_id) user_id, organization_id FROM accounts_membership
    WHERE role = 'owner' ORDER BY user_id, created_at, id
) own
WHERE accounts_organization.id = own.organization_id AND NOT EXISTS (
    SELECT FROM accounts_membership other
    WHERE other.organization_id = own.organization_id AND other.user_id <> own.user_id
)
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0008_organizations")]
    operations = [migrations.RunSQL(MARK, migrations.RunSQL.noop)]
