exec(open("/tmp/h/review/demo.py").read().split("for f in (demo_history")[0])
from spark_jobs.silver import batch_profile
def rec(w, p, key):
    w.partition[J] = p; w.write(J, T, "c", key=key)
def demo_accepted_then_dead():
    w = world(); start(w)
    rec(w,0,0); rec(w,1,1); rec(w,1,2); late = w.log.pop(); rec(w,0,3)
    bronze(w); w.load(); print("held", list(w.published.held_back)); w.replay()
    real = w.publish; w.publish = lambda after: None; w.load(); w.publish = real
    w.log.append(late); bronze(w); w.load(); print("I accepted, a load dies (or a group goes ahead), one more comes:", state(w), w.published.partitions)
demo_accepted_then_dead()
def demo_never_made():
    w = world(); start(w)
    # J's first change of table b comes late, after 4 in another partition; b stops at its first load
    w.partition[J] = 0; w.write(J, "public.b", "c", key=1); late = w.log.pop(); schema = w.log.pop()
    rec(w, 1, 2); bronze(w); w.load()
    w.log += [schema, late]; w.write(L, "public.b", "c", key=9, bad=True); bronze(w); w.load()
    print("J held", list(w.published.held_back), "b:", w.published.tables["public.b"].problem, w.published.tables["public.b"].positions, dict(w.published.tables["public.b"].schemas))
    real = w.replay
    # as replay.of_silver: a table that is not published yet is tried too; it stops, and has no schemas
    w.replay(); print("accepted:", w.published.partitions[J])
    w.cure(); w.write(L, "public.b", "c", key=8); rec(w, 1, 3); bronze(w); w.load(); w.load()
    print("H", state(w, "public.b"))
demo_never_made()
print("max rule:", batch_profile.find_disordered([{"source":J,"partition":0,"new":True,"changes":1,"first":"11","final":"20"},{"source":J,"partition":7,"new":True,"changes":1,"first":"15","final":"15"}], {J:{"0":"20","7":"12"}}))
# topic per table: hidden topic's second part, in the same partition, is below what was applied of it
print("unseen, second half:", batch_profile.find_disordered([{"source":J,"partition":0,"new":False,"changes":1,"first":"15","final":"15"}], {J:{"0":"20"}}))
# a proper move after an accepted accident is held back again
print("false positive:", list(batch_profile.find_disordered([{"source":J,"partition":0,"new":True,"changes":1,"first":"13","final":"15"},{"source":J,"partition":7,"new":True,"changes":1,"first":"16","final":"20"}], {J:{"0":"10","7":"12"}})))
# upgraded lakes: partitions known since late alone
print("upgrade, since None:", list(batch_profile.find_disordered([{"source":J,"partition":0,"new":False,"changes":1,"first":"1","final":"5"},{"source":J,"partition":7,"new":True,"changes":1,"first":"10","final":"12"}], {J:{"7":"9"}})))
from spark_jobs.maintenance.maintain import removable_positions
from spark_jobs.state.published_rows import Published, Unfinished
print("retention:", removable_positions(Published(stream="b", positions={J:"4"}, unfinished={J: Unfinished(after=0, changes=0, upto="4", problem=batch_profile.DISORDERED)})), "-> the late 3 is removed")
