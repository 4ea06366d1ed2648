import time, cProfile, pstats, sys
from conversations import services
from chatsite.database import run_db
from tests.conversations.callers import ended
async def test_prof(person, model):
    n=100
    chats=[await run_db(lambda: services.create_conversation(person.principal, model=model.name)) for _ in range(n+3)]
    for c in chats:
        a = await services.send(person.principal, c.id, "Hello")
        await ended(a.message_id)
    c=time.process_time(); w=time.perf_counter()
    for chat in chats[:n]:
        a = await services.send(person.principal, chat.id, "Hello")
    tot=time.process_time()-c; wall=time.perf_counter()-w
    open("/tmp/b/prof.txt","w").write(f"CPU ms/send {tot/n*1000} wall {wall/n*1000}\n")
    import asyncio
    c=time.process_time()
    async def nop(): 
        await run_db(int)
    for _ in range(200): await nop()
    open("/tmp/b/prof.txt","a").write(f"CPU ms/run_db {(time.process_time()-c)/200*1000}\n")
    c=time.process_time()
    from quotas import services as q; from quotas.selectors import plan_of; from chatsite.ids import new_id
    plan=await run_db(plan_of, person.organization.id)
    for _ in range(100): await q.reserve(person.organization.id,new_id(),plan,10,30) if False else None
    from conversations.drafts import load_send
    import threading
    def many():
        c=time.thread_time()
        for chat in chats[:n]:
            try: load_send(person.principal, chats[-1].id, None)
            except Exception as e: raise
        return (time.thread_time()-c)/n*1000
    open("/tmp/b/prof.txt","a").write(f"CPU ms/load_send {await run_db(many)}\n")
    from conversations.prompting import load_branch
    def many2():
        c=time.thread_time()
        for chat in chats[:n]:
            load_branch(chats[-1].id, chats[-1].active_leaf_id or chats[-1].id)
        return (time.thread_time()-c)/n*1000
    open("/tmp/b/prof.txt","a").write(f"CPU ms/load_branch {await run_db(many2)}\n")
