/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One fom that waits on two channels with a time-out, three times: the first event comes from a fom
 * on the same core, the second from a thread that is none of the engine's, and the third not at
 * all. Prints which it was, and then the trace of it all for ui.perfetto.dev, if given a file's
 * name.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <fairway/engine.h>

enum { WAIT = FW_PHASE_FIRST };
enum { WAITS = 3 };

/* How long each wait may last: much longer than needed, and the last, in vain, a moment. */
static const int64_t patience_ns[WAITS] = {10000000000, 10000000000, 50000000};

struct waiter {
    struct fw_fom fom;
    struct fw_clink news;
    struct fw_clink mail;
    bool has_armed;
    int waits;
};

static struct fw_channel news; /* Signalled by a fom of the same locality: costs no lock. */
static struct fw_channel mail; /* Signalled by anyone. */
static pthread_mutex_t over_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t over_changed = PTHREAD_COND_INITIALIZER;
static bool is_over;
static pthread_t postman;

static void *postman_run(void *argument)
{
    (void)argument;
    (void)fw_channel_signal(&mail);
    return NULL;
}

static enum fw_step herald_tick(struct fw_fom *fom)
{
    (void)fw_channel_signal(&news);
    return fw_fom_finish(fom);
}

static const struct fw_phase herald_phases[] = {{"TELL", FW_PHASE_BIT(FW_PHASE_FINISHED), false}};
static const struct fw_fom_type herald_type = {
    .name = "herald",
    .size = sizeof(struct fw_fom),
    .limit_count = 1,
    .phases = herald_phases,
    .phase_count = 1,
    .tick = herald_tick,
};

/* Has what this round waits for happen; the last waits in vain. */
static int provoke(struct fw_fom *fom, int round)
{
    struct fw_fom *herald;
    if (round == 0 && fw_fom_create(&herald, fw_fom_domain(fom), &herald_type, NULL) == 0) {
        fw_fom_start(herald); /* Runs after this tick, when we wait. */
    } else if (round == 1) {
        return -pthread_create(&postman, NULL, postman_run, NULL);
    }
    return 0;
}

static enum fw_step waiter_tick(struct fw_fom *fom)
{
    struct waiter *self = FW_FOM_OF(fom, struct waiter);
    if (fom->phase == FW_PHASE_FAILED) {
        return fw_fom_finish(fom);
    }
    if (self->has_armed) { /* What was it? */
        bool was_news = fw_clink_fired(&self->news);
        bool was_mail = fw_clink_fired(&self->mail);
        bool was_time = fw_fom_timed_out(fom);
        if (was_news || was_mail || was_time) { /* Else the tick came for no reason. */
            (void)printf("%s%s%s\n", was_news ? "news" : "", was_mail ? "mail" : "",
                         was_time ? "time-out" : "");
            self->has_armed = false;
            self->waits++;
        }
        if (self->waits == WAITS) {
            return fw_fom_finish(fom);
        }
    }
    fw_fom_arm(fom, &self->news, &news);
    fw_fom_arm(fom, &self->mail, &mail);
    int rc = self->has_armed ? 0 : provoke(fom, self->waits);
    self->has_armed = true;
    return rc != 0 ? fw_fom_fail(fom, rc)
                   : fw_fom_wait_until(fom, WAIT, fw_fom_now(fom) + patience_ns[self->waits]);
}

static int waiter_initialise(struct fw_fom *fom)
{
    fw_channel_init(&news);
    fw_channel_set_name(&news, "news");
    fw_channel_init_shared(&mail, fw_fom_domain(fom));
    fw_channel_set_name(&mail, "mail");
    return 0;
}

static void waiter_finish(struct fw_fom *fom)
{
    (void)fom;
    fw_channel_fini(&news);
    fw_channel_fini(&mail);
    (void)pthread_mutex_lock(&over_lock);
    is_over = true;
    (void)pthread_cond_signal(&over_changed);
    (void)pthread_mutex_unlock(&over_lock);
}

static const struct fw_phase waiter_phases[] = {{"WAIT", FW_PHASE_BIT(FW_PHASE_FINISHED), false}};
static const struct fw_fom_type waiter_type = {
    .name = "waiter",
    .size = sizeof(struct waiter),
    .limit_count = 1,
    .phases = waiter_phases,
    .phase_count = 1,
    .initialise = waiter_initialise,
    .tick = waiter_tick,
    .finish = waiter_finish,
};

static int sink(const char *bytes, size_t length, void *context)
{
    return fwrite(bytes, 1, length, context) == length ? 0 : -1;
}

static int trace_save(struct fw_domain *domain, const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return -1;
    }
    int rc = fw_domain_trace_write(domain, sink, file);
    return fclose(file) == 0 ? rc : -1;
}

int main(int argc, char **argv)
{
    const struct fw_domain_config config = {.locality_count = 1};
    struct fw_domain *domain;
    struct fw_fom *waiter;
    if (fw_domain_create(&domain, &config) != 0 || fw_domain_add_type(domain, &waiter_type) != 0 ||
        fw_domain_add_type(domain, &herald_type) != 0 || fw_domain_trace(domain, true) != 0 ||
        fw_domain_start(domain) != 0 || fw_fom_create(&waiter, domain, &waiter_type, NULL) != 0) {
        (void)fputs("two_channels: cannot start\n", stderr);
        return EXIT_FAILURE;
    }
    fw_fom_start(waiter);
    (void)pthread_mutex_lock(&over_lock);
    while (!is_over) {
        (void)pthread_cond_wait(&over_changed, &over_lock);
    }
    (void)pthread_mutex_unlock(&over_lock);
    (void)pthread_join(postman, NULL); /* Nobody uses the domain when it ends. */
    (void)fw_domain_stop(domain, 0);
    int rc = argc > 1 ? trace_save(domain, argv[1]) : 0;
    fw_domain_destroy(domain);
    return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
