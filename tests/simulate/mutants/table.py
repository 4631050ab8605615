# SPDX-License-Identifier: Apache-2.0
"""The mutants of the engine, the job kernel, the table, the server, the epochs, the volumes and replication: mistakes
that are easily made and that no test with real threads would find for sure. Each is a few words of one file,
replaced, and names the scenario that must notice."""

from collections import namedtuple

# `edits` are pairs of old and new text; the old one occurs in the file exactly once.
Mutant = namedtuple("Mutant", "name file scenario breaks edits")

WORD = "src/engine/word.h"
FOM = "src/engine/fom.c"
CHANNEL = "src/engine/channel.c"
MAIL = "src/engine/mail.c"
RUN = "src/engine/run.c"
TURN = "src/engine/turn.c"
DOMAIN = "src/engine/domain.c"
QUIESCE = "src/engine/quiesce.c"
RESOURCE = "src/engine/resource.c"
TENANTS = "src/sched/tenants.c"
DUES = "src/sched/dues.c"
SHARE = "src/sched/share.c"
DISPATCH = "src/jobs/dispatch.c"
HAND = "src/jobs/hand.c"
INBOX = "src/jobs/inbox.c"
OWNER = "src/jobs/owner.c"
REJOIN = "src/jobs/rejoin.c"
POST = "src/jobs/post.c"
CONNECTION = "src/server/connection.c"
INPUT = "src/server/input.c"
SERVER = "src/server/server.c"
BUCKET = "src/cache/bucket.c"
BUCKET_H = "src/cache/bucket.h"
CLEAN = "src/cache/clean.c"
SWEEP = "src/cache/sweep.c"
CLUSTER = "src/epoch/cluster.c"
COORDINATOR = "src/epoch/coordinator.c"
TABLE = "src/cache/table.c"
LINK = "src/repl/link.c"
REPL = "src/repl/repl.c"
APPLY = "src/repl/apply.c"
FOLLOW = "src/repl/follow.c"
REPLICATION = "src/server/replication.c"
DOUBT = "src/server/doubt.c"
LEASE = "src/server/lease.c"
AGENT = "src/volume/local.c"
PEERS = "src/volume/remote_hosts.c"
COMMANDS = "src/volume/remote_commands.c"
ORDERS = "src/volume/remote_operator.c"

MUTANTS = [
    # ---- lost wake-ups
    Mutant("park-ignores-notified", WORD, "engine-resource",
           "a wake-up during the tick is lost",
           [("    if (seen & FW_WORD_NOTIFIED) {\n        return false;",
             "    if (false) {\n        return false;")]),
    Mutant("park-without-comparing", WORD, "engine-wake",
           "a wake-up between the look at the word and the parking is lost",
           [("    return atomic_compare_exchange_strong_explicit(word, &seen,",
             "    atomic_store(word, (seen ^ FW_WORD_READY) | FW_WORD_PARKED);\n    return true ||"
             " atomic_compare_exchange_strong_explicit(word, &seen,")]),
    Mutant("notified-cleared-after-the-tick", FOM, "engine-wake",
           "what happened after the fom had looked is forgotten",
           [("    if (FW_UNLIKELY(step == STEP_END)) {",
             "    fw_word_begin(&fom->wake_word);\n    if (FW_UNLIKELY(step == STEP_END)) {")]),
    Mutant("ready-fom-not-notified", WORD, "engine-wake",
           "who is inside a tick is not told that it must look again",
           [("| FW_WORD_READY : seen | FW_WORD_NOTIFIED;", "| FW_WORD_READY : seen;")]),
    Mutant("bell-not-rung-for-the-inbox", MAIL, "engine-mail",
           "a core sleeps beside its mail",
           [("                                                    memory_order_relaxed));\n"
             "    fw_core_ring(to);",
             "                                                    memory_order_relaxed));")]),
    Mutant("bell-not-rung-for-the-rings", MAIL, "engine-wake",
           "a core sleeps beside mail of another core",
           [("        fw_core_ring(&core->domain->cores[i]);\n    }\n    return core->routes_pushed",
             "    }\n    return core->routes_pushed")]),
    Mutant("sleeps-without-a-last-look", RUN, "engine-mail",
           "mail that came before the bell was armed is not seen",
           [("fw_mail_receive(core) > 0 || core->queue.length", "core->queue.length")]),
    Mutant("bell-not-rung-by-a-returning-thread", TURN, "engine-block",
           "a thread that leaves its bracket waits for ever for the turn",
           [("    fw_core_ring(core);\n    (void)turn_wait(handler, false);",
             "    (void)turn_wait(handler, false);")]),
    Mutant("permit-not-offered", TURN, "engine-block",
           "who waits for a permit is not told that there is one",
           [('    FW_YIELD_POINT("turn: permit released");\n    permit_offer(domain);',
             '    FW_YIELD_POINT("turn: permit released");')]),

    # ---- double wake-ups
    Mutant("every-waker-wins", WORD, "engine-wake",
           "two wakers put one fom into the run-queue twice",
           [("            return is_parked;", "            return true;")]),
    Mutant("timer-does-not-compete", FOM, "engine-timeout",
           "a fom that was just woken is found overdue all the same",
           [("    if (fw_word_wake(&fom->wake_word, FW_WORD_ANY)) {\n        if (how",
             "    (void)fw_word_wake(&fom->wake_word, FW_WORD_ANY);\n    {\n        if (how")]),

    # ---- late wake-ups
    Mutant("generation-not-compared", WORD, "engine-timeout",
           "an old ticket wakes whoever has the memory now",
           [("(generation != FW_WORD_ANY && fw_word_generation(seen) != generation)",
             "(generation != FW_WORD_ANY && generation == 12345)")]),
    Mutant("generation-not-renewed", FOM, "engine-timeout",
           "what an overdue fom had waited for wakes it in FAILED",
           [("    fw_word_renew(&fom->wake_word);", "    ")]),
    Mutant("generation-not-raised-at-the-end", WORD, "engine-timeout",
           "a ticket is good for the next fom in the same memory",
           [('(fw_word_generation(seen) + 1) << FW_WORD_GENERATION_SHIFT;\n'
             '    FW_YIELD_POINT("word: finish");',
             'fw_word_generation(seen) << FW_WORD_GENERATION_SHIFT;\n'
             '    FW_YIELD_POINT("word: finish");')]),

    # ---- call-backs that are cancelled while they are pending
    Mutant("disarmed-without-the-lock", CHANNEL, "engine-cancel",
           "a clink is taken from a list that another thread is changing",
           [("    clink_lock(fom, clink);\n    /* Relaxed: it changes under the lock. */\n"
             "    struct fw_channel *channel = atomic_load_explicit(&clink->channel, "
             "memory_order_relaxed);\n    if (",
             "    struct fw_channel *channel = atomic_load_explicit(&clink->channel, "
             "memory_order_relaxed);\n    if ("),
            ("CLINK_IDLE, memory_order_relaxed);\n    }\n    clink_unlock(fom, clink);",
             "CLINK_IDLE, memory_order_relaxed);\n    }")]),
    Mutant("disarmed-without-a-second-look", CHANNEL, "engine-cancel",
           "a clink that fired while its fom waited for the lock is removed twice",
           [("    if (channel != NULL) {\n        FW_ASSERT(clink->lock_number",
             "    if (true) {\n        FW_ASSERT(clink->lock_number")]),
    Mutant("firing-not-acknowledged", CHANNEL, "engine-cancel",
           "a clink that has fired looks as if it was armed",
           [("    atomic_store_explicit(&clink->channel, NULL, memory_order_release);", "")]),
    Mutant("end-leaves-clinks-armed", FOM, "engine-cancel",
           "channels keep clinks of foms that are gone",
           [("    fw_fom_disarm(fom);\n    (void)fw_wheel_cancel(&core->wheel, &fom->timer);\n"
             "    if (fom->type->finish",
             "    (void)fw_wheel_cancel(&core->wheel, &fom->timer);\n    if (fom->type->finish")]),
    Mutant("tick-leaves-clinks-armed", FOM, "engine-cancel",
           "a clink is armed twice",
           [("    if (fom->armed != 0) {\n        fw_fom_disarm(fom);\n    }\n", "")]),
    Mutant("broadcast-comes-back-for-the-channel", CHANNEL, "engine-cancel",
           "a broadcast reads a channel that the fom it woke has ended",
           [("        fw_ticket_wake(ticket);\n        channel_lock(&firing);",
             "        fw_ticket_wake(ticket);\n        channel_lock(channel);")]),
    Mutant("timer-not-cancelled-at-the-end", FOM, "engine-resource",
           "the wheel keeps timers of foms that are gone",
           [("    (void)fw_wheel_cancel(&core->wheel, &fom->timer);\n    if (fom->type->finish",
             "    if (fom->type->finish")]),

    # ---- shutdown
    Mutant("only-parked-foms-are-stirred", FOM, "engine-drain",
           "a fom that was about to park does not notice the drain",
           [("    fw_fom_wake(fom); /* Those that are ready too: they may be about to park. */",
             "    if (fw_word_state(fw_word_get(&fom->wake_word)) == FW_WORD_PARKED) {\n"
             "        fw_fom_wake(fom);\n    }")]),
    Mutant("parks-without-a-look-at-the-state", FOM, "engine-stop",
           "a fom that begins after the drain waits patiently for ever",
           [("    if (forced_error(core, fom, fom->flags) != 0 || !fw_word_park(&fom->wake_word)) {",
             "    if (!fw_word_park(&fom->wake_word)) {")]),
    Mutant("counted-after-the-look-at-the-state", FOM, "engine-refuse",
           "the stop does not wait for a fom that was accepted",
           [('    live_add(domain, self, 1);\n    FW_YIELD_POINT("fom: counted");\n'
             "    int rc = -ESHUTDOWN;\n"
             "    if (atomic_load(&domain->state) != FW_DOMAIN_NORMAL) {\n        goto refused;\n    }",
             "    int rc = -ESHUTDOWN;\n"
             "    if (atomic_load(&domain->state) != FW_DOMAIN_NORMAL) {\n        return rc;\n    }\n"
             '    FW_YIELD_POINT("fom: counted");\n    live_add(domain, self, 1);')]),
    Mutant("drain-stirs-nobody", DOMAIN, "engine-drain",
           "those who wait patiently never hear of the drain",
           [("FW_DOMAIN_DRAIN)) {\n        fw_domain_stir(domain);", "FW_DOMAIN_DRAIN)) {")]),
    Mutant("drain-forgets-foms-of-strangers", DOMAIN, "engine-drain",
           "foms that were created without a turn never hear of the drain",
           [("    fw_domain_stir_foreign(domain);\n", "")]),

    # ---- mail
    Mutant("inbox-newest-first", MAIL, "engine-mail",
           "messages of one sender overtake each other",
           [("    uintptr_t oldest = 0;\n    while (newest != 0) {",
             "    uintptr_t oldest = newest;\n    while (false) {")]),
    Mutant("overflow-overtaken", MAIL, "engine-mail",
           "what the ring takes again arrives before what it had not taken",
           [("    if (route->overflow_first == 0 && fw_spsc_push", "    if (fw_spsc_push")]),
    Mutant("overflow-forgotten", MAIL, "engine-mail",
           "what the ring had not taken is never sent",
           [("        if (route_retry(route)) {", "        if (true) {")]),

    # ---- quiescence
    Mutant("granted-one-epoch-early", QUIESCE, "engine-quiesce",
           "an object dies under one who was there before",
           [("        if (request->target > least) {", "        if (request->target > least + 1) {")]),
    Mutant("brackets-do-not-count", TURN, "engine-quiesce",
           "an object dies under a thread in its bracket",
           [("    handler->depth = 1;", "    handler->depth = 1;\n"
             "    fw_safety_offline(&handler->safety);"),
            ("    core->now = fw_clock_now_ns();\n    fw_domain_release_permit",
             "    fw_safety_online(&handler->safety);\n    fw_domain_release_permit")]),
    Mutant("entered-without-a-word", QUIESCE, "engine-quiesce",
           "an object dies under a thread that has entered",
           [("fw_participant *participant)\n{\n    fw_safety_online(participant);",
             "fw_participant *participant)\n{\n    (void)participant;")]),
    Mutant("last-one-does-not-grant", QUIESCE, "engine-quiesce",
           "nobody grants when the last has let go",
           [("    if (before != OFFLINE && atomic", "    if (false && before != OFFLINE && atomic")]),

    # ---- resources
    Mutant("granted-beyond-the-capacity", RESOURCE, "engine-resource",
           "more is given than there is",
           [("        if (claim_fits(resource, claim)) {", "        if (true) {")]),
    Mutant("nothing-granted-when-given-back", RESOURCE, "engine-resource",
           "those who wait are not told that there is enough now",
           [("        while (resource_grant(resource)) {", "        while (false) {")]),

    # ---- the job kernel
    Mutant("jobs-sleeps-without-a-last-look", DISPATCH, "jobs-race",
           "a request that was posted before the bell was armed waits beside an idle worker",
           [("        if (fw_inbox_is_empty(&jobs->inbox)) {\n"
             "            return;\n        }\n        (void)fw_doorbell_disarm",
             "        return;\n        (void)fw_doorbell_disarm")]),
    Mutant("jobs-bell-not-answered", POST, "jobs-race",
           "who posts to idle workers wakes none",
           [("fw_doorbell_ring(&jobs->bell)) {", "fw_doorbell_ring(&jobs->bell) && false) {")]),
    Mutant("jobs-assigned-worker-not-woken", DISPATCH, "jobs-race",
           "a sleeping worker is given a request and sleeps on",
           [("    if (member != fw_jobs_self(jobs)) {", "    if (false) {")]),
    Mutant("jobs-news-not-looked-at", DISPATCH, "jobs-race",
           "what came while the role was held is nobody's",
           [("again = atomic_load_explicit(&jobs->news, memory_order_relaxed) &&", "again = false &&")]),
    Mutant("jobs-role-let-go-in-silence", DISPATCH, "jobs-race",
           "who holds the role for another purpose forgets the news",
           [("    fw_mutex_unlock(&jobs->role);\n    fw_jobs_dispatch(jobs, NULL);",
             "    fw_mutex_unlock(&jobs->role);")]),
    Mutant("jobs-rejoin-sleeps-without-a-last-look", OWNER, "jobs-race",
           "a request that ended before the rejoin was in line wakes nobody",
           [("    if (news) {\n        fw_owner_unwait",
             "    news = false;\n    if (news) {\n        fw_owner_unwait")]),
    Mutant("jobs-end-wakes-nobody", OWNER, "jobs-race",
           "a rejoin sleeps beside a finished request",
           [("    return atomic_load_explicit(&owner->waited_for, memory_order_seq_cst);",
             "    return false;")]),
    Mutant("jobs-none-exist-told-to-one", OWNER, "jobs-race",
           "of several that wait, one learns that no request exists",
           [("        if (!empty) {\n            break;", "        if (true) {\n            break;")]),
    Mutant("jobs-promised-are-not-woken", OWNER, "jobs-race",
           "a rejoin that was taken out of the line gets no token",
           [("        fw_unpark(&waiter->parker);\n", "")]),
    Mutant("jobs-rejoin-leaves-before-its-token", REJOIN, "jobs-race",
           "a rejoin whose time is over leaves its stack to who is about to wake it",
           [("        fw_park(&waiter.parker); /*", "        /*")]),
    Mutant("jobs-granted-are-not-woken", POST, "jobs-slots",
           "who was given a slot is not told so",
           [("        fw_unpark(&FW_LIST_ENTRY(link, struct fw_jobs_slot_waiter, link)->parker);\n", "")]),
    Mutant("jobs-inbox-not-compared", DISPATCH, "jobs-order",
           "a request in the inbox that is more urgent than all that wait is left there",
           [("!fw_inbox_is_below(&jobs->inbox, job->key)", "false")]),
    Mutant("jobs-inbox-looked-at-once", INBOX, "jobs-order",
           "of what has come since the last look only the first is compared",
           [("    while (inbox->key_max <= key) {", "    if (inbox->key_max <= key) {"),
            ("        inbox->seen++;\n", "        inbox->seen++;\n        return seen_key <= key;\n")]),
    Mutant("jobs-inbox-too-small", INBOX, "jobs-race",
           "a request is overwritten before anyone has read it",
           [("    while (size < slots) {", "    while (2 * size < slots) {")]),
    Mutant("jobs-one-idle-worker-is-enough", DISPATCH, "jobs-relaxed",
           "a worker is idle while a request waits that it could run",
           [("        if (job == NULL) {\n            return;\n        }\n        bool admitted",
             "        if (job == NULL || given) {\n            return;\n        }\n        bool admitted")]),
    Mutant("jobs-hands-kept-from-the-idle", DISPATCH, "jobs-relaxed",
           "a worker is idle while another has more than it runs",
           [("            fw_jobs_hands_recall(jobs); /* Nobody", "            /* Nobody")]),
    Mutant("jobs-hand-of-any-lane", HAND, "jobs-race",
           "a worker goes on in another lane than it was admitted in",
           [("fw_job_lane(job->flags) != lane || ", "")]),
    Mutant("jobs-hand-put-back-and-kept", HAND, "jobs-race",
           "a request that was put back is run from the hand as well",
           [("        struct fw_job *job = worker->hand[--worker->hand_end];\n",
             "        struct fw_job *job = worker->hand[worker->hand_first++];\n"),
            ("    fw_mutex_unlock(&worker->hand_lock);\n}",
             "    worker->hand_first = 0;\n    fw_mutex_unlock(&worker->hand_lock);\n}")]),
    Mutant("jobs-hand-frees-slots-in-silence", HAND, "jobs-slots",
           "who waits for a slot is not told that a worker has freed one by a request in its hand",
           [("        if (atomic_load_explicit(&jobs->slots_wanted, memory_order_relaxed)) {",
             "        if (false) {")]),
    Mutant("jobs-slots-not-granted", DISPATCH, "jobs-race",
           "who waits for a slot is not told that there is one",
           [("if (atomic_load_explicit(&jobs->slots_wanted, memory_order_relaxed)) {", "if (false) {")]),
    Mutant("jobs-farewell-ignores-running", DISPATCH, "jobs-race",
           "workers go home while a request runs that may still post",
           [("           atomic_load_explicit(&jobs->word, memory_order_relaxed) == 0 &&\n", "")]),
    Mutant("jobs-farewell-ignores-helpers", DISPATCH, "jobs-race",
           "the same, for a request that runs inside a rejoin",
           [("jobs->ending && jobs->helping == 0 &&", "jobs->ending &&")]),

    # ---- the server
    Mutant("server-input-not-evicted", INPUT, "server-faults",
           "what a connection left in the shared buffer is overwritten by the next",
           [("        fw_connection_input_evict(core);\n    }\n    core->owner = connection;",
             "        core->owner = NULL;\n    }\n    core->owner = connection;")]),
    Mutant("server-input-stays-behind", CONNECTION, "server-faults",
           "a connection that moves leaves its input at the old core",
           [("    if (core->owner == connection) {\n        fw_connection_input_evict(core);\n    }\n"
             "    if (connection->is_broken) {",
             "    if (connection->is_broken) {")]),
    Mutant("server-slow-reader-stays-admitted", CONNECTION, "server-faults",
           "others wait for a client that does not read",
           [("        connection_withdraw(connection); /* Others", "        (void)0; /* Others")]),
    Mutant("server-moves-without-waiting", CONNECTION, "server-move",
           "a connection that has moved is not told that it can be read",
           [("    connection->is_waiting = false;\n    return true;", "    return true;")]),
    Mutant("server-share-ends-for-good", CONNECTION, "server-move",
           "who had more to do than its share is not served again",
           [("        fw_sched_incoming(&core->sched, &connection->request);\n"
             "        connection_pass_on", "        connection_pass_on")]),
    Mutant("server-open-to-all-but-once", CONNECTION, "server-move",
           "the same, where nobody is scheduled",
           [("        connection_pass_on(connection);\n        connection_hand_in(connection);",
             "        connection_pass_on(connection);")]),
    Mutant("server-drain-wakes-nobody", SERVER, "server-stop",
           "idle connections keep a server that drains waiting",
           [("    fw_fom_wake(&connection->fom); /* Alive", "    (void)connection; /* Alive")]),

    # ---- the request scheduler
    Mutant("sched-tokens-taken-twice", TENANTS, "sched-rate",
           "two heads take the same tokens, so that the rate is more than was configured",
           [("        if (atomic_compare_exchange_weak_explicit(&tenant->empty_at, &empty_at, start + price,\n"
             "                                                  memory_order_relaxed, memory_order_relaxed)) {\n"
             "            return true;\n        }",
             "        atomic_store_explicit(&tenant->empty_at, start + price, memory_order_relaxed);\n"
             "        return true;")]),
    Mutant("sched-new-rate-not-noticed", DUES, "sched-rate",
           "heads that wait for tokens of the old rate do not look whether there is a new one",
           [("    return when_ns < limit_ns ? when_ns : limit_ns;", "    return (void)limit_ns, when_ns;")]),
    Mutant("sched-virtual-time-not-shared", DUES, "sched-share",
           "each head shares by weight for itself",
           [("        atomic_fetch_add_explicit(&tenant->virtual_time, amount, memory_order_relaxed);\n", "")]),
    Mutant("sched-virtual-time-counted-twice", DUES, "sched-share",
           "what a head gave is held against its tenant once more as if another had given it",
           [("        flow->seen += amount;\n", "")]),

    # ---- the table
    Mutant("table-bucket-not-asked-again", BUCKET_H, "table",
           "the bucket was split or merged while its lock was waited for",
           [("        if (FW_LIKELY(count_now == count) || fw_bucket_index(hash, count_now) == index) {",
             "        if (count_now != 0) {")]),
    Mutant("table-counted-after-the-locks", BUCKET, "table",
           "who gets the lock first sees the old number of buckets",
           [("    atomic_store_explicit(&buckets->count, count, memory_order_relaxed);\n"
             "    fw_bucket_unlock(pair->high);\n    fw_bucket_unlock(pair->low);",
             "    fw_bucket_unlock(pair->high);\n    fw_bucket_unlock(pair->low);\n"
             "    atomic_store_explicit(&buckets->count, count, memory_order_relaxed);")]),
    Mutant("table-half-locked", BUCKET, "table",
           "the lower bucket is split while others write to it",
           [("    fw_bucket_lock(pair.low);\n", ""), ("    fw_bucket_unlock(pair->low);\n", "")]),
    Mutant("table-interval-after-the-lock", SWEEP, "table",
           "two buckets are merged before the visitor knows where its bucket ends",
           [("        if (is_whole) {\n", "        fw_local_unlock(local, bucket);\n        if (is_whole) {\n"),
            ("        }\n        fw_local_unlock(local, bucket);\n", "        }\n")]),
    Mutant("table-found-before-the-lock", CLEAN, "table",
           "a record that dies while it is cleaned is moved all the same",
           [("    struct fw_bucket *bucket = fw_local_lock(local, hash);\n", ""),
            ("    struct fw_slot *slot = fw_bucket_find(&table->buckets, bucket, entry);\n",
             "    struct fw_bucket *bucket =\n        fw_bucket_at(&table->buckets, fw_bucket_index(hash, "
             "fw_buckets_count(&table->buckets)));\n"
             "    struct fw_slot *slot = fw_bucket_find(&table->buckets, bucket, entry);\n"
             "    bucket = fw_local_lock(local, hash);\n")]),

    # ---- epochs
    Mutant("epoch-counts-while-one-joins", COORDINATOR, "epoch",
           "what is said while somebody joins counts for some and not for others",
           [("        return; /* The rest will be said again. */\n", "")]),
    Mutant("epoch-newcomer-not-told", COORDINATOR, "epoch",
           "those who were there say nothing to one who joins",
           [("    } else if (view->has_joined || (", "    } else if ((")]),
    Mutant("epoch-start-for-another-next", CLUSTER, "epoch",
           "who gave up and asked anew is answered with the start that it gave up on",
           [("!cluster->is_pending || peer->ticket != cluster->ticket", "!cluster->is_pending")]),
    # ---- cluster-wide rates
    Mutant("share-raised-at-once", SHARE, "share",
           "a node has more before another knows that it has less",
           [("        lowest = smaller(lowest, tenant->parts[place]);\n", "")]),
    Mutant("share-of-the-dead-at-once", SHARE, "share",
           "what a node had that is cut off is taken while it still serves by it",
           [("    bool is_same = share->is_in && data->members == share->members &&\n",
             "    bool is_same = share->is_in && true |\n")]),
    Mutant("share-without-end", SHARE, "share",
           "a node that is cut off or was frozen serves as if it were not",
           [("        until_ns = share->lease_until_ns;\n", "        until_ns = INT64_MAX;\n")]),

    # ---- the lease
    Mutant("lease-not-checked-before-sending", CONNECTION, "lease",
           "a master that stood still sends what it had ready when another serves",
           [("    if (FW_UNLIKELY(fw_replication_is_silent(&core->server->replication))) {\n        fw_reply_clear",
             "    if (false) {\n        fw_reply_clear")]),
    Mutant("lease-end-unnoticed", REPLICATION, "lease",
           "clients that wait at a master without lease are not dropped",
           [("    return replication->had_lease ? fw_lease_left_ns(&replication->lease) : -1;",
             "    return -1;")]),
    Mutant("lease-not-needed-for-promotion", REPLICATION, "lease",
           "whoever gets the address becomes master, also one that was just started",
           [("wish == FW_REPL_ROLE_MASTER && fw_lease_runs(&replication->lease)",
             "wish == FW_REPL_ROLE_MASTER")]),
    Mutant("lease-checked-before-the-work", CONNECTION, "lease",
           "a master that stood still between work and reply sends it when another serves",
           [("    if (FW_UNLIKELY(fw_replication_is_silent(&core->server->replication))) {\n        fw_reply_clear",
             "    if (false) {\n        fw_reply_clear"),
            ("    FW_ASSERT(connection->is_admitted && connection->unsent == NULL);\n    FW_ASSERT(fw_reply",
             "    if (fw_replication_is_silent(&core->server->replication)) {\n"
             "        return fw_fom_goto(fom, FW_CONNECTION_CLOSE);\n    }\n"
             "    FW_ASSERT(connection->is_admitted && connection->unsent == NULL);\n    FW_ASSERT(fw_reply")]),
    Mutant("lease-renewed-by-what-came-late", LEASE, "lease",
           "a renewal that was in the socket of a stopped server counts from when it is read",
           [("    if (until_ns <= now_ns) {\n        return -ESTALE;",
             "    if (until_ns <= now_ns) {\n        until_ns = now_ns + lease->limit_ns;\n    }\n"
             "    if (false) {\n        return -ESTALE;")]),
    # ---- replication
    Mutant("removal-not-written-down", TABLE, "repl",
           "what is deleted at the master stays at its slaves",
           [("    fw_local_note(local, hold->item);\n    fw_local_bury", "    fw_local_bury")]),
    Mutant("mark-ahead-of-what-was-told", LINK, "repl-faults",
           "a slave that comes back goes on behind changes that it never heard of",
           [("    return link->position - (link->batch_end - link->batch_next);\n",
             "    return fw_changes_head(link->repl->changes);\n")]),
    Mutant("numbers-of-the-old-master-given-again", REPL, "repl",
           "a new master gives out CAS that the old one gave, and that it never heard of",
           [("        fw_table_take_numbers(table, fw_table_number(table) + numbers_unheard(repl));\n",
             "")]),
    Mutant("item-lives-longer-at-the-slave", APPLY, "repl",
           "an item lives 15 s longer at the slave",
           [("    fw_item_set_expires(item, expires);\n", "    fw_item_set_expires(item, expires == 0 ? 0 : expires + 15);\n")]),
    Mutant("touch-does-nothing-at-the-slave", APPLY, "repl",
           "a time to live that was changed at the master stays as it was at the slave",
           [("        fw_item_set_expires(hold.item, fw_cache_expiry(local, message->expires));\n", "")]),
    Mutant("torn-slave-goes-on", FOLLOW, "repl-faults",
           "a slave whose copy was cut off comes back as if it had everything",
           [("is_torn ? 0 : atomic_load", "atomic_load")]),
    Mutant("role-step-waits-for-nobody", REPLICATION, "repl",
           "a master without clients and slaves never gets to be a slave",
           [("    } while (fw_replication_stage(replication) != before);", "    } while (false);")]),

    Mutant("one-slave-too-few", REPL, "repl-ack",
           "a change is answered that fewer slaves have than were asked for",
           [("fw_repl_confirmed_slots(repl, position)) >= slaves;", "fw_repl_confirmed_slots(repl, position)) + 1 >= slaves;")]),
    Mutant("silent-success-at-the-time-out", CONNECTION, "repl-ack",
           "a client is told of success that nobody has confirmed",
           [("        fw_doubt_fail(connection);\n        connection->is_last = true;\n",
             "        fw_doubt_drop(connection);\n")]),
    Mutant("change-not-in-doubt", DOUBT, "repl-ack",
           "replies wait for what was changed before, and not for what they speak of",
           [("        doubt->position = fw_changes_head(repl->changes);\n",
             "        doubt->position = 0;\n")]),
    Mutant("cores-told-only-once", DOUBT, "repl-ack",
           "only the first who wait are told that they need not any longer",
           [("    atomic_store(&doubts->is_sent, false);\n", "")]),
    Mutant("slave-vouched-for-while-it-copies", LINK, "repl-copying",
           "a change is answered that only a slave has confirmed which cannot take over",
           [("    if (mark->is_whole && answer->status == 0) {\n        link_vouch", "    if (true) {\n        link_vouch")]),
    Mutant("cores-told-before-they-could-see", LINK, "repl-ack",
           "a core looks who need not wait before it can see that somebody need not",
           [("    FW_YIELD_POINT(\"link: a slave has confirmed\");\n",
             "    link->repl->host.confirmed(link->repl->host.server);\n"
             "    FW_YIELD_POINT(\"link: a slave has confirmed\");\n"),
            ("memory_order_release);\n    link->repl->host.confirmed(link->repl->host.server);\n",
             "memory_order_release);\n")]),

    # ---- volumes
    Mutant("volume-grant-not-durable", PEERS, "volume-fleet",
           "a host uses an extent that a crash of the manager gives to another",
           [("    return fw_volume_manager_commit(manager, reason);\n}\n\nstatic int pool_shrink",
             "    (void)reason;\n    return 0;\n}\n\nstatic int pool_shrink")]),
    Mutant("volume-placement-dropped-too-early", PEERS, "volume-fleet",
           "a placement has left the ring and is not in the redo log when the manager dies",
           [("    rc = fw_volume_manager_commit(manager, reason);\n    if (rc == 0) {\n"
             "        rc = fw_ring_advance(manager->peers[host].up, position, fw_volume_ring_reason(reason));",
             "    rc = fw_ring_advance(manager->peers[host].up, position, fw_volume_ring_reason(reason));\n"
             "    if (rc == 0) {\n        rc = fw_volume_manager_commit(manager, reason);")]),
    Mutant("volume-grant-taken-twice", AGENT, "volume-fleet",
           "what the manager sends again is in the pool though it has been placed",
           [("        if (message->runs[i].generation > agent->seen) {", "        if (true) {")]),
    Mutant("volume-reclaimed-without-draining", COMMANDS, "volume-fleet",
           "what a dead host had placed is given to others",
           [("        rc = fw_volume_peer_receive(manager, host, reason);\n    }\n"
             "    fw_ring_detach(taken);", "        rc = 0;\n    }\n    fw_ring_detach(taken);")]),
    Mutant("volume-command-done-twice", ORDERS, "volume-fleet",
           "the next manager does what the one that died had done",
           [("command->number != manager->metadata.command", "true")]),
    Mutant("volume-command-advanced-first", ORDERS, "volume-fleet",
           "a manager that dies takes the command with it, and the operator waits for ever",
           [("        rc = more < 0 ? more : is_cancelled ? 0 : command_run(manager, &command, reason);",
             "        rc = fw_ring_advance(manager->commands, end, fw_volume_ring_reason(reason));\n"
             "        rc = rc != 0 ? rc : more < 0 ? more : is_cancelled ? 0 : "
             "command_run(manager, &command, reason);")]),
]
