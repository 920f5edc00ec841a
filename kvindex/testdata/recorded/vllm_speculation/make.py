import json,sys,os
sys.path.insert(0,os.path.dirname(os.path.abspath(__file__)))
from orch import *
O='out/v0.32.0'; V='32'; os.makedirs(O,exist_ok=True); os.makedirs('logs',exist_ok=True)
KV={"enable_kv_cache_events":True,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558","topic":"kv@test"}
SPEC={'ngram':{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":4,"prompt_lookup_min":2},
      'eagle':{"method":"eagle","model":HERE+"/tiny-eagle","num_speculative_tokens":2},
      'mtp':{"method":"mtp","num_speculative_tokens":1}}
def scen(out,v,name=None,**k):
    r=Rec(out,name,**k); reset(r)
    conv={c:[{"role":"system","content":SYS}] for c in 'AB'}
    qs={'A':["When does the first train to the coast leave on Monday?","And the last one back?","How much is it for two adults and a child of nine?"],
        'B':["I want to cancel a group ticket.","Why not? The trip is tomorrow at 15:40.","Then change it to Friday, please."]}
    for t in range(3):
        for c in 'AB':
            conv[c].append({"role":"user","content":qs[c][t]})
            d=r.chat(conv[c],max_tokens=20+3*t)
            conv[c].append({"role":"assistant","content":d["output_text"]})
    r.chat(conv['A'][:-1],max_tokens=8); r.chat(conv['A'][:-1],max_tokens=8)
    p=r.tok(SYS)[:100]
    for t in range(4):
        d=r.comp(p,max_tokens=21+t)
        p=p+d["output_token_ids"]+r.tok(para(100+t,12))
    base=r.tok(para(7,80))
    for n in (B-1,B,B+1,B+2,B+3,2*B-1,2*B,2*B+1,2*B+2,3*B,3*B+1,3*B+2):
        r.comp(base[:n],max_tokens=1); r.comp(base[:n],max_tokens=1)
    b2=r.tok(para(8,80))
    for mt in (1,2,B-1,B,B+1,B+2):
        q=b2[mt:mt+B]; d=r.comp(q,max_tokens=mt); r.comp(q+d["output_token_ids"]+[5],max_tokens=1)
    for s in (None,"tenant-1",None,"tenant-1"):
        r.comp(base[:90],max_tokens=4,**({} if s is None else {"cache_salt":s}))
    docs=[r.tok(para(300+i,300))[:200+7*i] for i in range(6)]
    for i in range(6): r.comp(docs[i],max_tokens=6)
    for i in (0,5,1): r.comp(docs[i],max_tokens=6)
    r.close()
for w in sys.argv[1:]:
    e=Eng('v32',f'logs/{w}.log',['--max-model-len','1024','--block-size','32','--num-gpu-blocks-override','61','--max-num-seqs','8','--prefix-caching-hash-algo','sha256_cbor','--speculative-config',json.dumps(SPEC[w])],env={'PYTHONHASHSEED':'0',**({'TINY':HERE+'/tiny-mimo'} if w=='mtp' else {})},kv=KV)
    try:
        e.start(); run(scen,O,V,name='speculation_'+w); metrics(O,'metrics_'+w)
    except Exception as x: print(w,x)
    finally: e.kill()
