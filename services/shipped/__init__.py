"""What comes with Tandem: the embedded model, made from a package into a Hugging Face folder in the user's cache."""
