package adapters
