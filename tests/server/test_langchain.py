"""LangChain's client, unchanged, against the toy."""

import langchain_openai as langchain
from live import ToyServer
from worlds import MODEL

SCHEMA = {
    "title": "person",
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["age"],
    "additionalProperties": False,
}


def test_invoke_stream_and_structured_output(toy: ToyServer) -> None:
    options = {"base_url": f"{toy.url}/v1", "api_key": "any", "model": MODEL, "max_tokens": 20, "max_retries": 0}
    chat = langchain.ChatOpenAI(**options, temperature=0.8, seed=3)
    answer = chat.invoke("the kiln")
    assert answer.usage_metadata["output_tokens"] == answer.response_metadata["token_usage"]["completion_tokens"]
    assert "".join(piece.content for piece in chat.stream("the kiln")) == answer.content
    person = chat.with_structured_output(SCHEMA, method="json_schema").invoke("how old")
    assert set(person) == {"age"}
    text = langchain.OpenAI(**options).invoke("the kiln")
    assert isinstance(text, str)
