"""The API that clients of OpenAI speak: stateless completions behind the same scheduler, quotas and failover."""
