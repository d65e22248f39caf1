"""One command from a fine-tuned model and some texts to a faster file."""
