package cache

// Route is what the route tier remembers of a kind of prompt: which model
// answers it and how.
type Route struct {
	Model        string
	AdapterScale *float64
	Temperature  float64
}
