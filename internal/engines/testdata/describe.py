"""Writes described.json: the names of all members of events, requests and metrics in the engines' sources.

    python describe.py VLLM_SDIST SGLANG_WHEEL   # unpacked

The members of ATOM's events (ROCm/ATOM, atom/distributed/kv_events.py at 0290bb3f) and of TensorRT-LLM's
(NVIDIA/TensorRT-LLM, tensorrt_llm/_utils.py KVCacheEventSerializer, serve/kv_event_fanout.py at 48f2db0b) were
read by hand."""
import ast, json, os, re, sys


def classes(root):
    found = {}
    for d, _, files in sorted(os.walk(root)):
        for f in sorted(files):
            if not (f.endswith('protocol.py') or f in ('io_struct.py', 'kv_events.py')):
                continue
            for n in ast.parse(open(os.path.join(d, f)).read()).body:
                if isinstance(n, ast.ClassDef):
                    names = [s.target.id for s in n.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
                    found.setdefault(n.name, sorted({x for x in names if not x.startswith('_')}))
    return found


def metrics(root, prefix):
    names = set()
    for d, _, files in os.walk(root):
        for f in files:
            if f.endswith('.py'):
                names |= set(re.findall('"(' + prefix + ':[a-z0-9_]+)"', open(os.path.join(d, f), errors='ignore').read()))
    return sorted(names)


def engine(root, prefix, requests, tokenize):
    c = classes(root)
    pick = lambda names: sorted({m for n in names for m in c[n]})
    return {'events': pick(['BlockStored', 'BlockRemoved', 'AllBlocksCleared']), 'requests': pick(requests),
            'tokenize': pick(tokenize), 'metrics': metrics(root, prefix)}


out = {
    'vLLM': engine(sys.argv[1] + '/vllm', 'vllm',
                   ['ChatCompletionRequest', 'CompletionRequest', 'ResponsesRequest', 'AnthropicMessagesRequest', 'GenerateRequest'],
                   ['TokenizeChatRequest', 'TokenizeCompletionRequest', 'TokenizeResponse']),
    'SGLang': engine(sys.argv[2] + '/sglang/srt', 'sglang',
                     ['ChatCompletionRequest', 'CompletionRequest', 'ResponsesRequest', 'AnthropicMessagesRequest', 'GenerateReqInput'],
                     ['TokenizeRequest', 'TokenizeResponse']),
    'ATOM': {'events': sorted('block_hashes parent_block_hash token_ids block_size lora_id medium lora_name extra_keys group_idx '
                              'kv_cache_spec_kind kv_cache_spec_sliding_window from_medium to_medium'.split())},
    'TensorRT-LLM': {'events': sorted('event_id data window_size attention_dp_rank layer_group_id hash_algo type parent_hash blocks block_hash '
                                      'block_hashes tokens token_id token_extra_id cache_level priority lora_id mm_keys hash start_offset '
                                      'new_value old_value num_blocks_per_cache_level lora_name cache_salt is_eagle'.split())},
}
json.dump(out, open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'described.json'), 'w'), indent=1)
