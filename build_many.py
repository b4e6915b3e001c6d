import sys,time
from tests.simulation.archive.seeds import failures
if __name__=='__main__':
    a,b=int(sys.argv[1]),int(sys.argv[2])
    import time
    t=time.time(); bad=[]
    for n,f in enumerate(failures(range(a,b),jobs=2)):
        if f: bad.append(f); print(f, flush=True)
    print(n+1,"seeds",len(bad),"failed", time.time()-t)
    