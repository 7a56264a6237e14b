"""Drafters made for a target, from what that target writes itself: prompts, answers, shards, training, evaluation."""
