"""Images and labels, from where people keep them."""
