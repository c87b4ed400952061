"""What a refusal by the REST API must look like."""

import json
from typing import Any

from tests.support.house import House


async def refused(h: House, method: str, path: str, status: int, field: str, word: str = "", **options: Any) -> Any:
    """The answer is a problem document of this status that names the field, and has a fix."""
    response = await h.http.request(method, path, **options)
    assert response.status_code == status, f"{response.status_code} {response.text[:500]}"
    assert response.headers["content-type"].startswith("application/problem+json")
    body = response.json()
    assert body["status"] == status
    assert field in [e["field"] for e in body["errors"]], body
    assert all(e["message"] and e["fix"] for e in body["errors"]), body
    assert word in json.dumps(body), body
    assert "Traceback" not in response.text
    return body
