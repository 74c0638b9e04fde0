"""The server: OpenAI's protocol in front of one engine. Nothing here touches tokens' laws, caches or settings' meaning.

A request's way: guards (key, size, clients) -> schema -> translate -> EngineThread -> render -> answer or event stream.
"""
