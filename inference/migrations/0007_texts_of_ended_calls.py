from django.db import migrations

from chatsite.append_only import not_emptied

# What callers wrote was kept beside the numbers of their calls. It now goes when a request ends; that of the past goes here.
FORGET = """
UPDATE inference_request
SET sampling = jsonb_set(
    jsonb_set(sampling, '{stop}', '[]', false),
    '{extra}', coalesce(sampling -> 'extra', '{}') - 'response_format' - 'logit_bias', false
)
WHERE status NOT IN ('queued', 'running') AND (
    sampling -> 'stop' <> '[]' OR sampling -> 'extra' ? 'response_format' OR sampling -> 'extra' ? 'logit_bias'
)
"""


class Migration(migrations.Migration):
    dependencies = [("inference", "0006_bills_partial")]
    operations = [
        migrations.RunSQL(FORGET, migrations.RunSQL.noop),
        not_emptied("inference_callreading", "inference_call_reading"),
    ]
