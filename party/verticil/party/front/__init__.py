"""What people of a site look at before they decide: what is asked, what it means, what would leave."""
