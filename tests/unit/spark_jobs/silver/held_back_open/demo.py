"""Direct demonstrations with the model's World."""
import sys, random
sys.path.insert(0, "WORKTREE")
from tests.unit.spark_jobs.silver import test_plan_model as m
from types import SimpleNamespace
J, L = m.SOURCES
T = "public.a"

class Quiet:
    def random(self): return 0.5
    def shuffle(self, x): pass
    def randint(self, a, b): return b
    def choice(self, x): return x[0]
    def randrange(self, n): return 0

def world():
    w = m.World(0); w.random = Quiet(); return w
def bronze(w):
    w.commit_bronze(w.log[w.taken:]); w.taken = len(w.log)
def straddle(w):
    """J writes to partitions 0, 1 and 0 again."""
    for p in (0, 1, 0):
        w.partition[J] = p
        w.write(J, T, "c", key=p)
def state(w, name=T):
    t = w.published.tables[name]
    want = m.fold({}, [r for r in w.log if r.table == name and r.position <= t.positions.get(r.source, "")])
    got = w.shown[name]
    return dict(positions=t.positions, missing={k: v for k, v in want.items() if got.get(k) != v}, held=list(w.published.held_back), problem=t.problem)

def start(w):
    w.write(J, T, "c", key=5); w.write(L, T, "c", key=5); bronze(w); w.load()

def demo_history():
    w = world(); start(w)
    straddle(w); bronze(w); w.load()
    # a history is configured: rows to keep, none kept yet
    w.stream.history_of = lambda name: object()
    w.write(L, T, "c", key=7); bronze(w); w.load()
    print("A history configured while J is held back:", state(w))

def demo_copy():
    w = world(); start(w)
    w.write(L, T, m.COPY_BEGINS); w.write(L, T, "t"); w.write(L, T, "c", key=8); w.write(L, T, "c", key=9); bronze(w); w.load()
    straddle(w); bronze(w); w.load()
    w.write(L, T, m.COPY_ENDS); bronze(w); w.load()
    print("B L's copy of the shared table ends while J is held back:", state(w))

def demo_replay_fail():
    w = world(); start(w)
    straddle(w); bronze(w); w.load()
    real = w.apply
    def stop(task, version, readable, *, build=False):
        if build: raise m.StoppedError
        return real(task, version, readable, build=build)
    w.apply = stop; w.replay(); w.apply = real
    w.write(L, T, "c", key=7); bronze(w); w.load()
    print("C the replay stopped at the table:", state(w))
    w.cure(); w.load(); 
    print("  and cured:", state(w))

def demo_dead_load():
    w = world()
    w.write(J, T, "c", key=5); w.write(L, T, "c", key=5); bronze(w); w.load()
    for p in (0,):
        w.write(J, T, "c", key=1)
    w.write(L, T, "c", key=1); bronze(w)
    real = w.publish; w.publish = lambda after: None; w.load(); w.publish = real   # dies before it publishes; or a task of a group
    straddle(w); w.write(L, T, "c", key=2); bronze(w)
    before = w.published.load
    for _ in range(5): w.load()
    print("D a load died (or a group went ahead), then J out of order: publications in 5 loads:", w.published.load - before, "| L shown:", w.published.positions[L], "of", w.log[-1].position)

def demo_remade():
    w = world(); start(w)
    # J moves to partition 1; one record of partition 0 comes late
    w.write(J, T, "c", key=1); late = w.log.pop(); w.partition[J] = 1
    w.write(J, T, "c", key=2); bronze(w); w.load()
    w.log.append(late); bronze(w); w.load(); print("E late held:", state(w))
    w.make_bronze_again(); w.load(); print("  bronze made again:", state(w))
    w.write(L, T, "c", key=7); w.write(J, T, "c", key=3); bronze(w); w.load(); print("  and later:", state(w))

def demo_replay_idle():
    w = world(); start(w)
    straddle(w); bronze(w); w.load(); w.replay()
    from spark_jobs.silver import held_back, tables_load
    b = w.known(); lag = held_back.select_lagging(w.lake, b, {m.published.folder(n) for n in w.folders})
    print("F after the replay: lagging", lag, "held", list(b.held_back), "-> idle while bronze has no new commit:", not tables_load.to_try(w.lake, b, lag) and b.bronze_version == len(w.bronze) - 1)

for f in (demo_history, demo_copy, demo_replay_fail, demo_dead_load, demo_remade, demo_replay_idle):
    try: f()
    except Exception as e:
        import traceback; traceback.print_exc()
