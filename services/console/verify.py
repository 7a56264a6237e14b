"""`tandem verify`: a request as it would be posted to the gateway, asked with an audit."""

from pathlib import Path
from typing import Any

from services.console.posted import read, report_of
from services.errors import Unavailable


def verify(path: Path, *, address: str) -> tuple[bool, str]:
    """Whether plain decoding gives the same answer, and the verdict in a line."""
    report = report_of(read(path), path, wish="audit", address=address)
    audit = report.get("audit")
    if audit is None:
        raise Unavailable("the answer was not audited; try again")
    return audit["differs_at"] is None, verdict(audit, report)


def verdict(audit: dict[str, Any], report: dict[str, Any]) -> str:
    ran = f"{report['resolved']}, {report['accepted']} of {report['drafted']} drafts accepted, seed {report['seed']}"
    if audit["differs_at"] is None:
        return f"the same: {audit['checked']} tokens of {ran}"
    margin = "" if audit["margin"] is None else f", where plain decoding's likeliest token led by {audit['margin']:.6g}"
    exact = "" if report["exact"] else f"; exactness is not promised here: {report['inexact_reason']}"
    return f"different at token {audit['differs_at']} of choice {audit['choice']}{margin}: {ran}{exact}"
