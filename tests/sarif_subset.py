"""What SARIF 2.1.0 says of the objects that our reports have, as a JSON schema.

Written from the text of the standard (OASIS, "Static Analysis Results Interchange Format Version 2.1.0 Plus Errata
01"); numbers are its sections. Unlike the whole, it allows no object or property that we have no use for.
"""


def _object(properties, *required):
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_TEXT = {"type": "string", "minLength": 1}
_MESSAGE = _object({"text": _TEXT}, "text")  # 3.11, 3.12
_FROM_1 = {"type": "integer", "minimum": 1}
_LEVEL = {"enum": ["none", "note", "warning", "error"]}  # 3.27.10
_ARTIFACT = _object(  # 3.4; a URI has ASCII alone (RFC 3986)
    {"uri": {"type": "string", "pattern": r"^[!-~]+$"}, "uriBaseId": {"const": "%SRCROOT%"}}, "uri"
)
_REGION = _object(  # 3.30
    {"startLine": _FROM_1, "startColumn": _FROM_1, "endLine": _FROM_1, "endColumn": _FROM_1},
    "startLine",
)
_REPLACEMENT = _object(  # 3.57
    {"deletedRegion": _REGION, "insertedContent": _object({"text": {"type": "string"}}, "text")},
    "deletedRegion",
)
_FIX = _object(  # 3.55, 3.56
    {
        "description": _MESSAGE,
        "artifactChanges": {
            "type": "array",
            "minItems": 1,
            "items": _object(
                {
                    "artifactLocation": _ARTIFACT,
                    "replacements": {"type": "array", "minItems": 1, "items": _REPLACEMENT},
                },
                "artifactLocation",
                "replacements",
            ),
        },
    },
    "artifactChanges",
)
_RESULT = _object(  # 3.27
    {
        "ruleId": _TEXT,
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": _LEVEL,
        "message": _MESSAGE,
        "locations": {
            "type": "array",
            "items": _object(  # 3.28, 3.29
                {
                    "physicalLocation": _object(
                        {"artifactLocation": _ARTIFACT, "region": _REGION}, "artifactLocation"
                    )
                }
            ),
        },
        "fixes": {"type": "array", "items": _FIX},
    },
    "message",
)
_RULE = _object(  # 3.49
    {
        "id": _TEXT,
        "name": _TEXT,
        "shortDescription": _MESSAGE,
        "fullDescription": _MESSAGE,
        "help": _MESSAGE,
        "defaultConfiguration": _object({"level": _LEVEL}),
    },
    "id",
)
_DRIVER = _object(  # 3.19
    {"name": _TEXT, "version": _TEXT, "rules": {"type": "array", "items": _RULE}}, "name"
)
_RUN = _object(  # 3.14
    {
        "tool": _object({"driver": _DRIVER}, "driver"),
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "newlineSequences": {"type": "array", "minItems": 1, "items": _TEXT, "uniqueItems": True},
        "results": {"type": "array", "items": _RESULT},
        "invocations": {  # 3.20
            "type": "array",
            "items": _object({"executionSuccessful": {"type": "boolean"}}, "executionSuccessful"),
        },
    },
    "tool",
)
SARIF = _object(  # 3.13
    {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": _RUN},
    },
    "version",
    "runs",
)
