"""What a sub-network costs: MACs, parameters; and the budgets set on them."""
