"""`headrace receive`: a first receiver of deliveries in a branch (docs/deliveries.md)."""
