# SPDX-License-Identifier: Apache-2.0
#
# The front door. Meson and ninja do the work; this file installs what they need, knows the options
# of each kind of build, and gives every task one name. `make help` lists the targets; the comments
# that start with ## are its text.

BUILD     ?= build
PREFIX    ?= /usr/local
DESTDIR   ?=
PORT      ?= 11211
HTTP_PORT ?= 11280
SECONDS   ?= 60
SEEDS     ?= 1000
SUITES    ?=
PARTS     ?=
ANALYSE   ?=
MODULE    ?= all
GROUP     ?= build test bench optional deb fresh

# A sanitizer build by clang. Meson's own check for undefined symbols does not know the sanitizers'.
sanitizer_setup = CC=clang tools/setup $(1) --prefix=$(PREFIX) -Dchecks=true -Db_lundef=false \
                  -Db_sanitize=$(2)
comma := ,
# The suites that test what was compiled; pages are followed with the build that readers make.
compiled = --no-suite tidy --no-suite tools --no-suite packaging --no-suite slow --no-suite docs \
           --no-suite walk --no-suite page --no-suite failover --no-suite volumes

# Those of them in which one thread at a time has something to do, or that only compare bytes.
sequential = --no-suite bench --no-suite cmd --no-suite conform --no-suite fixtures --no-suite fuzz --no-suite replay

# What one clone has compiled, another takes from ccache, in any language, although its debug information names the first.
export CCACHE_NOHASHDIR := 1
export CCACHE_SLOPPINESS := locale

.DEFAULT_GOAL := all
.NOTPARALLEL:
.PHONY: all server run install deb bench check check-fresh check-parts check-slow clang sanitize sanitize-address \
        sanitize-thread tidy format \
        models fuzz simulate mutants mutate packages clean help

##@ Use it

all: ## build the server, build/fairway, and the library, build/libfairway.a and .so
	@tools/install-packages build
	@tools/setup $(BUILD) --prefix=$(PREFIX)
	@ninja -C $(BUILD)
	@cat $(BUILD)/left-out.txt

server: # What `run` needs, and not the tests.
	@tools/install-packages build
	@tools/setup $(BUILD) --prefix=$(PREFIX)
	@ninja -C $(BUILD) fairway
	@cat $(BUILD)/left-out.txt

run: server ## serve on 127.0.0.1, ports PORT (11211) and HTTP_PORT (11280), until Ctrl-C
	@printf '%s\n' '' \
	  'Fairway is about to serve on 127.0.0.1:$(PORT). To talk to it, type in another terminal (bash):' '' \
	  '  exec 3<>/dev/tcp/127.0.0.1/$(PORT)' \
	  "  printf 'set k 0 0 5\r\nhello\r\nget k\r\nquit\r\n' >&3; cat <&3" '' \
	  'or connect any memcached client. What it does is shown at http://127.0.0.1:$(HTTP_PORT)/. Ctrl-C stops it.' ''
	@exec $(BUILD)/fairway serve -l 127.0.0.1 -p $(PORT) --http-listen 127.0.0.1:$(HTTP_PORT)

install: all ## install to PREFIX (/usr/local), below DESTDIR if that is given
	@DESTDIR='$(DESTDIR)' meson install -C $(BUILD) --no-rebuild

deb: ## build Debian packages, in build-deb
	@tools/install-packages build deb
	@tools/deb

packages: ## install the Debian packages of GROUP (all: build test bench optional deb fresh; or optional/lvm)
	@tools/install-packages $(GROUP)

##@ Test it

check: ## build, and run the tests, or those of SUITES; ends with "N passed, N failed, N skipped"
	@tools/install-packages build test
	@tools/setup $(BUILD) --prefix=$(PREFIX)
	@tools/check $(BUILD) --no-suite slow $(SUITES:%=--suite %)

check-fresh: ## try `make run` and `make check` on a bare Debian, as root and as a user with sudo
	@tools/fresh $(SUITES:%=--suite %)

check-parts: ## the unit tests without each optional part, and without all; by gcc and clang; or without PARTS
	@tools/install-packages build test optional
	@tools/parts $(PARTS)

check-slow: ## the tests that take minutes: Debian packages, emulated machines, tools that mutate and fuzz
	@tools/install-packages build test deb
	@tools/setup $(BUILD) --prefix=$(PREFIX)
	@tools/check $(BUILD) --suite slow

clang: ## the unit tests, compiled by clang
	@tools/install-packages build test
	@CC=clang tools/setup build-clang --prefix=$(PREFIX)
	@tools/check build-clang --suite unit

sanitize: sanitize-address sanitize-thread ## the tests under ASan and UBSan, then under TSan

sanitize-address: # The first half.
	@tools/install-packages build test
	@$(call sanitizer_setup,build-asan,address$(comma)undefined)
	@tools/check build-asan $(compiled) --timeout-multiplier 6

sanitize-thread: # The second.
	@tools/install-packages build test
	@$(call sanitizer_setup,build-tsan,thread)
	@tools/check build-tsan $(compiled) $(sequential) --timeout-multiplier 12

fuzz: ## let each fuzz target run for SECONDS (60)
	@tools/install-packages build test
	@tools/fuzz $(SECONDS)

simulate: all ## run every scenario of the simulator with SEEDS (1000) seeds
	@$(BUILD)/simulate --list | awk '!/planted bug/ { print $$1 }' | \
	  xargs -P "$$(nproc)" -I '{}' $(BUILD)/simulate --scenario '{}' --seeds $(SEEDS)

mutants: all ## make known mistakes in engine, jobs and server; the simulator must find each
	@tests/simulate/mutants/mutants --build $(BUILD)

models: ## verify the Promela models
	@tools/install-packages build test
	@tools/models

mutate: ## test the tests of MODULE (all): make small mistakes, see which go unnoticed
	@tools/install-packages build test
	@test -x tools/mutate || { echo 'make mutate: there is no tools/mutate in this tree' >&2; exit 1; }
	@tools/mutate $(MODULE)

bench: ## compare ourselves with our peers, in an hour; the report is in build/bench-report
	@tools/install-packages build bench
	@tools/setup $(BUILD) --prefix=$(PREFIX)
	@ninja -C $(BUILD)
	@bench/report --build $(BUILD)

##@ Keep it tidy

tidy: ## check the tree's rules, the layout of the source, and clang-tidy
	@tools/install-packages build test
	@CC=clang tools/setup build-clang --prefix=$(PREFIX)
	@tools/analyse $(ANALYSE) build-clang; analysed=$$?; \
	  tools/check build-clang --suite tidy && exit $$analysed

format: ## lay out all C source as .clang-format says
	@tools/install-packages test
	@git ls-files -z -co --exclude-standard '*.c' '*.h' | xargs -0 clang-format -i

clean: ## remove everything that was built
	rm -rf build build-* .cache/clang-tidy

help: ## this text
	@awk '/^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  match($$0, /^[a-z-]+:.*## /) { text = substr($$0, RLENGTH + 1); sub(/:.*/, ""); \
	    printf "  make %-10s %s\n", $$0, text }' Makefile
	@printf '\n%s\n' 'Variables go on the command line: make install PREFIX=/usr DESTDIR=/tmp/root'
