/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When may a rejoin answer "none exist"? Only if no request of the owner is anywhere.
 *
 * A request is in one of several places: posted, ready, running, or waiting to be rejoined. The
 * worker moves it along while the dispatcher looks at one place after the other, so a request can
 * slip from a place not yet seen to one already seen. ORDER is how the dispatcher looks:
 *
 *   0  rejoin, running, posted, ready: the order of the source document. Wrong.
 *   1  ready, running, posted, rejoin: with the flow, and the post slot after the running request,
 *      which may post a sibling before it ends.
 *   2  one counter per owner, raised before a request is visible and lowered when it is over.
 *   3  ready, posted, running, rejoin: with the flow, but blind to a sibling posted meanwhile. Wrong.
 *
 * REPOST: the running request posts one more of the same owner before it ends. REJ: it is
 * rejoinable, else it is over when it has run. `out` counts what is posted and not over.
 *
 * Verify: -DORDER=0 -DREPOST=0 -DREJ=1  fails: assertion violated
 * Verify: -DORDER=1 -DREPOST=0 -DREJ=0  passes
 * Verify: -DORDER=1 -DREPOST=0 -DREJ=1  passes
 * Verify: -DORDER=1 -DREPOST=1 -DREJ=0  passes
 * Verify: -DORDER=1 -DREPOST=1 -DREJ=1  passes
 * Verify: -DORDER=2 -DREPOST=0 -DREJ=0  passes
 * Verify: -DORDER=2 -DREPOST=0 -DREJ=1  passes
 * Verify: -DORDER=2 -DREPOST=1 -DREJ=0  passes
 * Verify: -DORDER=2 -DREPOST=1 -DREJ=1  passes
 * Verify: -DORDER=3 -DREPOST=1 -DREJ=0  fails: assertion violated
 */
bool running = 1;
byte rejoin = 0, posted = 0, ready = 0, out = 1;

proctype worker()
{
#if REPOST
    atomic { out++; posted = 1 } /* Counted before it can be seen. */
#endif
#if REJ
    rejoin++;
    running = 0
#else
    running = 0;
    out--
#endif
}

inline look(place)
{
    if
    :: place > 0 -> seen = 1
    :: else
    fi
}

proctype dispatcher()
{
    bool seen = 0;
#if ORDER == 0
    look(rejoin);
    look(running);
    look(posted);
    look(ready);
#elif ORDER == 1
    look(ready);
    look(running);
    look(posted);
    look(rejoin);
#elif ORDER == 2
    look(out);
#else
    look(ready);
    look(posted);
    look(running);
    look(rejoin);
#endif
    atomic {
        if
        :: !seen -> assert(!running && rejoin == 0 && posted == 0 && ready == 0)
        :: else
        fi
    }
}

init
{
    atomic {
        run worker();
        run dispatcher()
    }
}
