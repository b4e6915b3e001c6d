"""Taking a query checkpoint back to the newest batch whose state the workers still hold, after every copy was lost."""
