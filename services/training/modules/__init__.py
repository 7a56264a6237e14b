"""The drafters' layers once more, with gradients: parameters have the names of the published files, and the maths is
that of services/drafter/models, for many sequences at once and for many drafts of each."""
