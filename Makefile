# Everything from nothing: each target first makes what it needs, and does nothing twice.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
# Stamps live in the environment they describe: deleting .venv undoes them.
READY := $(VENV)/.ready
TEACHER := $(VENV)/.teacher
VOICE := model_repository/tts/1/voice.json
override export TEXT := $(if $(value TEXT),$(value TEXT),The birch canoe slid on the smooth planks.)
ARGS ?=

# $(call debian,PACKAGES): installs them when root, otherwise says what to type. Used only where something is missing.
debian = { if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; \
	then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1) >/dev/null; \
	else echo "This needs $(1): run 'sudo apt-get install $(1)', then this command again." >&2; exit 1; fi; }

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(READY) ## Make .venv with everything pinned (installs python3.11-venv, libpython3.11 where missing)

$(READY): pyproject.toml client/pyproject.toml
	@command -v $(PYTHON) >/dev/null || $(call debian,python3.11)
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(call debian,python3.11-venv)
	@$(PYTHON) -c 'import ctypes; ctypes.CDLL("libpython3.11.so.1.0")' 2>/dev/null || $(call debian,libpython3.11)
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q -e '.[serve,client,export,train,evaluate,loadtest,dev]' -e client
	@touch $@

# The teacher (flite, voice rms) and WordNet's word lists: only training and evaluation need them.
$(TEACHER): $(READY)
	@$(PY) -c 'import ctypes; ctypes.CDLL("libflite.so.1")' 2>/dev/null || $(call debian,flite libflite1)
	@test -f /usr/share/wordnet/index.noun || $(call debian,wordnet-base)
	@touch $@

.PHONY: train
# Torch takes and gives back memory for every tensor of a CPU step; glibc keeps it instead, which halves a draft's step.
train: export MALLOC_MMAP_MAX_ = 0
train: export MALLOC_TRIM_THRESHOLD_ = 100000000000
train: $(TEACHER) ## Train the voice: corpus, codec, language model, prosody (hours; resumes where it stopped)
	$(PY) -m training.corpus
	$(PY) -m training.codec
	$(PY) -m training.lm
	$(PY) -m training.prosody
	$(PY) -m training.own_speech --count 14000 --out data/lm/own.npz
	$(PY) -m training.draft --kind heads --heads 6 --speech data/lm/own.npz --noise 0 --steps 2400
	$(PY) -m training.draft --kind heads --start checkpoints/rms/heads-6 --tune-lm 0.2 --rate 1e-3 \
		--speech data/lm/own.npz --noise 0 --steps 2400 --work data/heads-6-tuned --out data/heads-6-tuned/out
	cp data/heads-6-tuned/out/model.safetensors checkpoints/rms/heads-6/
	cp data/heads-6-tuned/out/lm/model.safetensors checkpoints/rms/lm/
	$(PY) -m training.draft_model --speech data/lm/own.npz
	$(PY) -m training.draft --kind mtp --modules 2 --speech data/lm/own.npz --noise 0 --steps 3200
	$(PY) -m training.calibrate --draft checkpoints/rms/heads-6 --speech data/lm/own.npz
	$(PY) -m training.calibrate --draft checkpoints/rms/mtp-2 --speech data/lm/own.npz

.PHONY: export
export: $(VOICE) ## Turn checkpoints/ into the served voice (ONNX), each graph held to torch by a parity gate

$(VOICE): $(wildcard checkpoints/rms/*/*) $(shell find export -name '*.py') | $(READY)
	$(PY) -m export
	@touch $@

.PHONY: serve
serve: $(VOICE) ## Serve the voice with tritonserver (ARGS="--help" shows ports and knobs)
	$(PY) -m backends.launcher $(ARGS)

.PHONY: speak
speak: $(VOICE) ## Speak TEXT="…" through a server of its own into out.wav, and print the latencies
	@$(PY) -m backends.launcher.speak "$$TEXT" -o out.wav

.PHONY: test
test: $(VOICE) $(TEACHER) ## Run every test, the real server's too
	$(PY) -m pytest $(ARGS)

.PHONY: bench
bench: $(VOICE) ## Measure the engine, in process and through Triton; writes results/engine.json
	$(PY) -m tests.benchmarks.engine $(ARGS)

.PHONY: evaluate
evaluate: $(VOICE) $(TEACHER) ## Judge teacher, codec and voice by word error rate; writes results/quality.json
	$(PY) -m training.evaluate $(ARGS)

.PHONY: bench-speculation
bench-speculation: $(VOICE) ## Speculation against none, every proposer x rule; writes results/speculation.json
	$(PY) -m tests.benchmarks.speculation $(ARGS)

.PHONY: bench-size
bench-size: $(VOICE) ## Speculation by the size of the LM, 13 to 466 M; adds to results/speculation.json, draws a .png
	$(PY) -m tests.benchmarks.by_size $(ARGS)

.PHONY: evaluate-speculation
evaluate-speculation: $(VOICE) $(TEACHER) ## Word error rate of every proposer x rule, sweeps, swaps; writes a picture
	$(PY) -m training.speculation $(ARGS)

# perf_analyzer is linked to libb64.
.PHONY: loadtest
loadtest: $(VOICE) ## Pooled serving and its twin under load; writes results/load.json and results/load/ (ARGS=--quick)
	@$(PY) -c 'import ctypes; ctypes.CDLL("libb64.so.0d")' 2>/dev/null || $(call debian,libb64-0d)
	$(PY) -m loadtest $(ARGS)

.PHONY: soak
soak: $(VOICE) ## 20,000 mixed streams, some cancelled or malformed; nothing may be lost or grow (ARGS="--streams 2000")
	$(PY) -m tests.soak $(ARGS)

.PHONY: lint
lint: $(READY) ## ruff and mypy
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

.PHONY: clean
clean: ## Remove what make made, but for data/ (the training corpus) and checkpoints/
	rm -rf $(VENV) build client/build *.egg-info client/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis out.wav
	find model_repository/tts/1 -mindepth 1 ! -name .gitkeep -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
