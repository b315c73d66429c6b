"""What runs around the parts: the local stack, and what deploys them."""
