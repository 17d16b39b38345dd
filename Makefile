# Every target installs what it needs: as root on Debian it installs missing packages, elsewhere it lists them.
#
#   make            builds everything
#   make demo       runs three programs on a virtual machine, each with two placements of its memory, and one under several policies
#   make test       checks format, lints, parsers and all promises, including those on virtual machines; ends with how many
#                   tests there were, and how many were skipped: by this system, or as they take minutes
#   make nightly    runs the tests that boot virtual machines with Debian's newest kernel, fetched each time, also those that
#                   take minutes
#   make peers      compares hwloc's own test trees and XML files, of the source package in HWLOC_SOURCE, with lstopo, and runs
#                   numactl's own tests, of that in NUMACTL_SOURCE, with `nearside run` on virtual machines (about 15 minutes)
#   make pictures   makes a page and picture of each kind in the lab, and checks in a browser, at 1400 and 500 pixels, light and
#                   dark, that nothing is cut, hidden or hard to read; the screenshots are below target/pictures
#   make fuzz       fuzzes each parser of outside input with libFuzzer, FUZZ_SECONDS (600) each; `make test` only tries their seeds
#   make sanitize   runs tests of unsafe code under address and thread sanitizers and Miri, with Rust's nightly toolchain
#   make torture    attacks the promises of SECURITY.md for about an hour, as root: changed inputs, other users, kills, failing
#                   system calls, interrupts; TORTURE="--starts 50 --interrupts 5 ..." for less (`nearside-torture --help`)
#   make fidelity   repeats published measurements of real machines on virtual ones, and writes docs/fidelity.md (about 25 minutes)
#   make results    diagnoses programs with a known flaw on a virtual machine, and measures the gain of their cures (docs/diagnoses.md);
#                   runs every workload under every policy, keeps the results in target/results, and writes docs/results.md
#                   from them (some hours; given again, it continues); docs/programs.md, of programs of Debian; and
#                   docs/os-experiments.md, from an operating system's study
#   make isolation  repeats the isolation study's experiments with grants, and writes docs/isolation-crowds.md, -ways.md,
#                   -mixes.md and -parts.md (some hours; given again, it continues)
#   make sql        builds all again with `nearside sql`, based on DataFusion, and checks it; `make install` then installs that build
#   make bench      measures the figures and enters them in docs/figures.md; BENCH=--cold-build also times a build from nothing
#   make setup      installs everything that the targets above need
#   make install    installs the build below PREFIX (/usr/local), with man pages, completions and a systemd unit; DESTDIR is
#                   prepended. SYSCONFDIR (PREFIX/etc) is for the service's configuration; an existing one is kept
#   make deb        makes a Debian package of the build, for the Debian that it was built on and newer ones
#   make portable   packs a build for any x86-64 Linux with glibc 2.31 (2020) or newer; builds all again with zig, from PyPI
#   make uninstall  removes the installed files
#   make clean      removes the build

PREFIX ?= /usr/local
PROFILE ?= release
SYSCONFDIR ?= $(PREFIX)/etc
BENCH ?=
FUZZ_SECONDS ?= 600
TORTURE ?=
HWLOC_SOURCE ?= $(target)/hwloc
NUMACTL_SOURCE ?= $(target)/numactl

# rustup's folder of cargo, for shells that have not loaded its environment.
export PATH := $(PATH):$(HOME)/.cargo/bin

target := $(or $(CARGO_TARGET_DIR),target)
# Not expanded here: targets below choose another profile.
built = $(target)/$(PROFILE)
nearside = $(built)/nearside
archive = $(built)/libnearside_c.a
library = $(built)/libnearside
picture := $(target)/photo.bmp
explore = PATH=$(abspath $(built)):$$PATH $(nearside) explore
# `nearside explore` says so where a claim of the file was missed.
missed := 3

.PHONY: build demo test nightly peers pictures fuzz sanitize torture sql fidelity results isolation bench setup install deb portable uninstall clean

build:
	tools/requirements build
	cargo build --profile $(PROFILE) --workspace --locked
	crates/capi/link-library $(archive) $(library)

demo: build
	tools/requirements demo
	$(nearside) lab setup
	demo/make-input $(picture)
	$(built)/nearside-demo $(picture)
	PATH=$(abspath $(built)):$$PATH $(nearside) compare --machine opteron-6164x2 --time-scale 50 --repeat 3 --seconds /seconds \
		--policies first-touch,interleave,carrefour --html $(target)/compare.html -- \
		nearside-workloads streamcluster --pin 0-23 --repeat 20 --json

# Built with profile `ci`, which is quicker to build than a release. Everything is built in one step, not
# by `build` before: test dependencies enable other features of some crates, whose dependents would be built twice.
test nightly: PROFILE = ci
test:
	tools/step tools/requirements build test
	tools/step cargo build --profile $(PROFILE) --workspace --all-targets --locked
	tools/step $(nearside) lab setup
	tools/step cargo fmt --all --check
	tools/step tools/check-language
	tools/step tools/check-dependencies
	tools/step cargo clippy --profile $(PROFILE) --workspace --all-targets --locked -- --deny warnings
	tools/step tools/log $(target)/tests.log cargo test --profile $(PROFILE) --workspace --locked --no-fail-fast || \
		tools/step tools/test-again $(target)/tests.log lab cargo test --profile $(PROFILE) --workspace --locked
	tools/step $(built)/nearside-fidelity experiments/*.toml --quick --check
	@tools/count-tests $(target)/tests.log

# The tests that depend on the guest's kernel or take minutes each, and examples that need programs from PyPI. Built as for
# `test`, so that both share one build. One of the workloads shows that the campaign of `make results` works. The part of
# `make torture` that changes inputs runs here too, as it needs no other users.
nightly: export NEARSIDE_KERNEL := newest
nightly:
	tools/requirements build test
	cargo build --profile $(PROFILE) --workspace --all-targets --locked
	$(nearside) lab setup
	cargo test --profile $(PROFILE) --workspace --locked --test lab -- --include-ignored
	$(built)/nearside-diagnoses facerec psearchy --check
	RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked
	$(explore) experiments/campaigns/placement.toml --into $(target)/results --only workload=ft,machine=opteron-8380x4
	$(built)/nearside-torture inputs
	tools/requirements examples
	tools/export-examples $(nearside) $(built)/nearside-workloads

pictures: build
	tools/requirements demo pictures
	$(nearside) lab setup
	PATH=$(abspath $(built)):$$PATH tools/make-pages $(target)/pictures
	tools/check-pages $(target)/pictures/screenshots $(target)/pictures/*.html $(target)/pictures/*.svg

# Needs the unpacked sources: `apt-get source hwloc numactl`.
peers: build
	tools/requirements test
	$(nearside) lab setup
	tools/compare-hwloc $(nearside) $(HWLOC_SOURCE)
	tools/compare-numactl $(nearside) $(NUMACTL_SOURCE)

fuzz:
	tools/requirements build test
	fuzz/run all $(FUZZ_SECONDS)

sanitize:
	tools/requirements build
	tools/sanitize

torture:
	tools/requirements build test torture
	cargo build --release --workspace --all-targets --locked
	$(nearside) lab setup
	$(built)/nearside-torture $(TORTURE)

# Separate from `test`, as DataFusion adds 200 packages to the build. The tested build is the one that `make install` installs:
# another build would have other features of shared dependencies, and build DataFusion once more.
sql: build
	tools/requirements test
	cargo clippy --release --workspace --all-targets --features nearside/sql --locked -- --deny warnings
	cargo test --release --workspace --features nearside/sql --locked --test commands sql::

fidelity: build
	tools/requirements test
	$(nearside) lab setup
	$(built)/nearside-fidelity experiments/*.toml --output docs/fidelity.md

results: build
	tools/requirements test results
	$(nearside) lab setup
	$(built)/nearside-diagnoses
	$(explore) experiments/campaigns/placement.toml --into $(target)/results --markdown docs/results.md || test $$? = $(missed)
	$(explore) experiments/campaigns/programs.toml --into $(target)/programs --markdown docs/programs.md || test $$? = $(missed)
	$(explore) experiments/campaigns/horky.toml --into $(target)/horky --markdown docs/os-experiments.md || test $$? = $(missed)

isolation: build
	tools/requirements test
	$(nearside) lab setup
	$(explore) experiments/campaigns/isolation.toml --into $(target)/isolation --markdown docs/isolation-crowds.md || test $$? = $(missed)
	$(explore) experiments/campaigns/isolation-ways.toml --into $(target)/isolation-ways --markdown docs/isolation-ways.md || test $$? = $(missed)
	$(explore) experiments/campaigns/isolation-mixes.toml --into $(target)/isolation-mixes --markdown docs/isolation-mixes.md || test $$? = $(missed)
	$(explore) experiments/campaigns/isolation-parts.toml --into $(target)/isolation-parts --markdown docs/isolation-parts.md || test $$? = $(missed)

bench: build
	tools/requirements demo bench
	$(nearside) lab setup
	$(built)/nearside-fidelity experiments/memprof-table-1-2.toml --quick --check
	$(built)/nearside-bench --page docs/figures.md $(BENCH)

setup: build
	tools/requirements demo test
	$(nearside) lab setup

# Not `build`: the root user that installs may have no cargo.
$(nearside) $(archive):
	$(MAKE) build

$(library)/libnearside.so.1: $(archive) crates/capi/link-library crates/capi/libnearside.map
	crates/capi/link-library $(archive) $(library)

root = $(DESTDIR)$(PREFIX)
unit = $(root)/lib/systemd/system/nearside.service
configuration = $(DESTDIR)$(SYSCONFDIR)/nearside.toml

version = $(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)

install: $(nearside) $(library)/libnearside.so.1
	install -d $(root)/bin $(root)/lib/nearside
	install -m 755 $(nearside) $(built)/nearside-workloads $(root)/bin
	install -m 755 $(built)/libnearside_lab_plugin.so $(built)/libnearside_preload.so \
		$(built)/libnearside_heap.so $(built)/libnearside_start.so $(root)/lib/nearside
	install -d $(root)/include
	install -m 644 crates/capi/include/nearside.h crates/capi/include/nearside-numa-compat.h \
		crates/capi/include/nearside-jemalloc.h crates/capi/include/nearside-memory-resource.hpp $(root)/include
	install -d $(root)/lib/pkgconfig $(root)/share/man/man3
	install -m 755 $(library)/libnearside.so.1 $(root)/lib
	ln -sf libnearside.so.1 $(root)/lib/libnearside.so
	install -m 644 $(library)/libnearside.a $(root)/lib
	sed 's#@prefix@#$(PREFIX)#; s#@version@#$(version)#' crates/capi/nearside.pc.in > $(root)/lib/pkgconfig/nearside.pc
	chmod 644 $(root)/lib/pkgconfig/nearside.pc
	install -m 644 crates/capi/libnearside.3 $(root)/share/man/man3
	$(nearside) manual $(root)/share
	install -d $(root)/lib/systemd/system $(DESTDIR)$(SYSCONFDIR)
	sed 's#@bindir@#$(PREFIX)/bin#; s#@sysconfdir@#$(SYSCONFDIR)#' packaging/nearside.service > $(unit)
	chmod 644 $(unit)
	install -m 644 packaging/keep-balancing.conf packaging/reserve.conf packaging/socket-group.conf $(root)/lib/nearside
	install -m 755 packaging/adopt-cgroup $(root)/lib/nearside
	test -e $(configuration) || install -m 644 packaging/nearside.toml $(configuration)
	install -d $(root)/share/doc/nearside/docs
	install -m 644 README.md SECURITY.md SPECIFICATION.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE $(root)/share/doc/nearside
	install -m 644 docs/*.md docs/*.svg docs/*.toml docs/*.jsonl $(root)/share/doc/nearside/docs

# From what was built, so that a package has the tested programs.
deb: $(nearside)
	tools/requirements deb
	packaging/deb $(target) $(PROFILE)

portable:
	tools/requirements build portable
	packaging/portable $(target)

uninstall:
	rm -f $(root)/bin/nearside $(root)/bin/nearside-workloads
	rm -rf $(root)/lib/nearside $(root)/share/doc/nearside
	rm -f $(root)/include/nearside.h $(root)/include/nearside-numa-compat.h \
		$(root)/include/nearside-jemalloc.h $(root)/include/nearside-memory-resource.hpp
	rm -f $(root)/lib/pkgconfig/nearside.pc $(root)/share/man/man3/libnearside.3
	rm -f $(root)/lib/libnearside.so.1 $(root)/lib/libnearside.so $(root)/lib/libnearside.a
	rm -f $(root)/share/man/man1/nearside.1 $(root)/share/man/man1/nearside-*.1 $(root)/share/man/man5/nearside.toml.5 $(root)/share/man/man5/machine-files.5
	rm -f $(root)/share/bash-completion/completions/nearside
	rm -f $(root)/share/zsh/site-functions/_nearside
	rm -f $(root)/share/fish/vendor_completions.d/nearside.fish
	rm -f $(unit)
	! cmp -s packaging/nearside.toml $(configuration) || rm -f $(configuration)

clean:
	cargo clean
	cd fuzz && cargo clean
