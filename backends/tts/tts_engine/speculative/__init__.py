"""Speculation without models: drafts, acceptance rules, and what they accept. Pure functions over numpy arrays."""

from tts_engine.speculative.accepted import Accepted
from tts_engine.speculative.draft import Draft
from tts_engine.speculative.groups import Groups
from tts_engine.speculative.rules import PROPOSERS, RULES, Proposer, Rule, check_pair
from tts_engine.speculative.tree import Tree

__all__ = ["PROPOSERS", "RULES", "Accepted", "Draft", "Groups", "Proposer", "Rule", "Tree", "check_pair"]
