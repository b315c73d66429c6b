import sys, collections, traceback, time
sys.path.insert(0,"WORKTREE")
from tests.unit.spark_jobs.silver import test_plan_model as m
a,b=int(sys.argv[1]),int(sys.argv[2]); c=collections.Counter(); ex={}
t=time.time()
for seed in range(a,b):
    w=m.World(seed)
    try:
        for _ in range(m.STEPS):
            w.step(); w.check()
        w.finish()
    except Exception as e:
        tb=traceback.extract_tb(e.__traceback__)
        key=f"{type(e).__name__} {tb[-1].lineno} {tb[-1].line} via {tb[0].line}"; c[key]+=1; ex.setdefault(key,[]).append(seed)
print(round(time.time()-t),"s", sum(c.values()),"of",b-a)
for k,n in c.most_common(): print(n,k,ex[k][:5])
