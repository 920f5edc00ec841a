"""Checks a client of Python against the gateway: client.py NAME. Prints a line "CHECK ok|FAILED NOTE" for each check.

BASE is the gateway's address, CONTROL that of the engines' recorder.
"""
import json, os, sys, threading, time, urllib.request

os.environ.update(ANONYMIZED_TELEMETRY="false", LITELLM_TELEMETRY="False", LITELLM_LOCAL_MODEL_COST_MAP="True",
                  LANGCHAIN_TRACING_V2="false", LANGSMITH_TRACING="false", DO_NOT_TRACK="1")
BASE, CONTROL = os.environ["BASE"], os.environ["CONTROL"]
LONG = "You are a careful assistant. " * 12
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a town.",
          "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}}}]


def control(path):
    with urllib.request.urlopen(CONTROL + path) as r:
        return json.load(r)


def seen():
    return control("/seen")


def check(name, f):
    control("/reset")
    try:
        note = f() or ""
        print(f"{name}\tok\t{note}", flush=True)
    except Exception as e:  # the check's own words
        print(f"{name}\tFAILED\t{type(e).__name__}: {str(e)[:200]}", flush=True)


def want(ok, what):
    if not ok:
        raise AssertionError(what)


def stays(say):
    """Three turns of one conversation go to one engine."""
    said = [("system", LONG + name), ("user", "hello")]
    for turn in range(3):
        said.append(("assistant", say(said)))
        said.append(("user", f"and then? {turn}"))
    s = seen()
    want(s["requests"] == 3, f"{s['requests']} requests for 3 turns")
    want(len(s["engines"]) == 1, f"the turns went to {s['engines']}")


def gone(stream):
    """A stream that is left ends at the engine."""
    it = iter(stream)
    next(it)
    stream.close()
    for _ in range(500):
        if control("/seen")["left"] == 1:
            return
        time.sleep(0.02)
    raise AssertionError("the engine goes on")


name = sys.argv[1]
if name == "openai":
    import openai
    print("version\tok\topenai", openai.__version__, flush=True)
    c = openai.OpenAI(base_url=BASE + "/v1", api_key="sk-test")
    msg = lambda said: [{"role": r, "content": t} for r, t in said]
    ask = lambda said, **k: c.chat.completions.create(model="m", messages=msg(said), max_tokens=20, **k)
    one = [("user", "hello")]
    check("whole", lambda: want(ask(one).choices[0].message.content, "no text"))

    def streams():
        parts = list(ask(one, stream=True, stream_options={"include_usage": True}))
        want(sum(1 for p in parts if p.choices and p.choices[0].delta.content) > 2 and parts[-1].usage, "too few parts")
    check("streams", streams)
    check("tools", lambda: want(ask(one, tools=TOOLS).choices, "no choice"))

    def errors():
        try:
            ask([("user", "x")], extra_body={"kv_transfer_params": {"do_remote_prefill": True}})
        except openai.BadRequestError as e:
            want(seen()["requests"] == 0, "the engine got it")
            return f"BadRequestError: {e.code}"
        raise AssertionError("no error")
    check("errors", errors)

    def retries():
        control("/fail?n=1&status=503")
        want(ask(one).choices, "no choice")
        s = seen()
        want(s["requests"] == 2 and s["served"] == 1, f"{s}")
    check("retries", retries)
    check("cancel", lambda: gone(ask(one, stream=True, extra_body={"ignore_eos": True, "min_tokens": 4000, "max_tokens": 4000})))
    check("turns", lambda: stays(lambda said: ask(said).choices[0].message.content))

    def responses():
        a = c.responses.create(model="m", input="hello")
        b = c.responses.create(model="m", input="go on", previous_response_id=a.id)
        want(c.responses.retrieve(b.id).id == b.id, "another one")
        c.responses.delete(b.id)
        want(len(seen()["engines"]) == 1, "they went to several engines")
    check("responses", responses)
    check("uploads", lambda: want(c.files.create(file=("a.jsonl", b'{"a":1}\n' * 1000), purpose="batch").id, "no id"))

    def embeddings():
        try:
            c.embeddings.create(model="m", input="x")
        except openai.NotFoundError:
            return "404 of the engine"
    check("other paths", embeddings)

    def gzipped():
        import gzip, httpx
        body = gzip.compress(json.dumps({"model": "m", "max_tokens": 4, "messages": msg(one)}).encode())
        r = httpx.post(BASE + "/v1/chat/completions", content=body,
                       headers={"content-encoding": "gzip", "content-type": "application/json"})
        want(r.status_code == 200, r.text)
    check("compressed", gzipped)
elif name == "anthropic":
    import anthropic
    print("version\tok\tanthropic", anthropic.__version__, flush=True)
    c = anthropic.Anthropic(base_url=BASE, api_key="sk-test")

    def ask(said, **k):
        return c.messages.create(model="m", max_tokens=k.pop("max_tokens", 20), system=next((t for r, t in said if r == "system"), "short"),
                                 messages=[{"role": r, "content": t} for r, t in said if r != "system"], **k)
    one = [("user", "hello")]
    check("whole", lambda: want(ask(one).content[0].text, "no text"))

    def streams():
        with c.messages.stream(model="m", max_tokens=20, messages=[{"role": "user", "content": "hello"}]) as s:
            want(len(list(s.text_stream)) > 2, "too few parts")
    check("streams", streams)
    check("tools", lambda: want(ask(one, tools=[{"name": "weather", "input_schema": {"type": "object", "properties": {}}}]).content, "no content"))

    def retries():
        control("/fail?n=1&status=529")
        want(ask(one).content, "no content")
        s = seen()
        want(s["requests"] == 2 and s["served"] == 1, f"{s}")
    check("retries", retries)
    check("cancel", lambda: gone(ask(one, stream=True, max_tokens=4000, extra_body={"ignore_eos": True, "min_tokens": 4000})))
    check("turns", lambda: stays(lambda said: ask(said).content[0].text))

    def errors():
        try:
            ask(one, extra_body={"kv_transfer_params": {}})
        except anthropic.BadRequestError:
            return
        raise AssertionError("no error")
    check("errors", errors)
elif name == "langchain":
    import langchain_openai
    from importlib.metadata import version
    print("version\tok\tlangchain-openai", version("langchain-openai"), flush=True)
    c = langchain_openai.ChatOpenAI(base_url=BASE + "/v1", api_key="sk-test", model="m", max_tokens=20)
    one = [("user", "hello")]
    check("whole", lambda: want(c.invoke(one).content, "no text"))
    check("streams", lambda: want(len(list(c.stream(one))) > 2, "too few parts"))
    check("tools", lambda: want(c.bind_tools(TOOLS).invoke(one), "no reply"))

    def retries():
        control("/fail?n=1&status=503")
        want(c.invoke(one).content, "no text")
        s = seen()
        want(s["requests"] == 2 and s["served"] == 1, f"{s}")
    check("retries", retries)
    check("turns", lambda: stays(lambda said: c.invoke(said).content))
elif name == "litellm":
    import litellm
    from importlib.metadata import version
    litellm.telemetry = False
    print("version\tok\tlitellm", version("litellm"), flush=True)
    ask = lambda said, **k: litellm.completion(model="openai/m", api_base=BASE + "/v1", api_key="sk-test", max_tokens=20,
                                               messages=[{"role": r, "content": t} for r, t in said], **k)
    one = [("user", "hello")]
    check("whole", lambda: want(ask(one).choices[0].message.content, "no text"))
    check("streams", lambda: want(len(list(ask(one, stream=True))) > 2, "too few parts"))
    check("tools", lambda: want(ask(one, tools=TOOLS).choices, "no choice"))

    def retries():
        control("/fail?n=1&status=503")
        want(ask(one).choices, "no choice")
        s = seen()
        want(s["requests"] == 2 and s["served"] == 1, f"{s}")
    check("retries", retries)
    check("turns", lambda: stays(lambda said: ask(said).choices[0].message.content))
