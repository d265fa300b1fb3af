"""What click says of a wrong value, in the words of the rest of the command line."""


def plain_words(message: str) -> str:
    """On one line, without the names of click's types."""
    text = " ".join(message.split())
    for kind, words in (("integer", "whole number"), ("float", "number")):
        text = text.replace(f"valid {kind} range", words).replace(f"valid {kind}", words)
    return text if text.endswith((".", "?", "!")) else f"{text}."
